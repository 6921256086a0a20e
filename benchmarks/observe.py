"""What seeing costs: `observe` beside plain attention and beside torch's explicit weights, and its memory.

Each number of threads is measured in a process of its own, all ways in turn, one thread by its own clock and
several by wall time; the peak of memory in another. A `ratio` is the time of observing to that of plain
attention, the median of what each turn finds; `to_torch` how many times as long torch takes for all weights
and the statistics of the default, which it makes by the fewest operations.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

HEADS, LENGTH, LONG, HEAD_DIM = 8, 4096, 16_384, 64
TURNS = 7
THREADS = sorted({1, len(os.sched_getaffinity(0))})
LIMITS = {
    **{f"{threads}t_default_ratio": 2.0 for threads in THREADS},
    **{f"{threads}t_map_ratio": 2.5 for threads in THREADS},
    "peak_mebibytes": 64.0,
}
LEAST = {f"{threads}t_to_torch": 4.0 for threads in THREADS}


def measure() -> dict[str, float]:
    """Return milliseconds and ratios on one thread and on all, and the peak of memory above the inputs."""
    figures: dict[str, float] = {}
    for threads in THREADS:
        found = in_a_process("times", str(threads))
        figures |= {f"{threads}t_{name}": value for name, value in found.items()}
    return figures | in_a_process("peak")


def in_a_process(*asked: str) -> dict[str, float]:
    """Return what a fresh process measures."""
    command = [sys.executable, "-m", "benchmarks.observe", *asked]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 - our own module
    found: dict[str, float] = json.loads(done.stdout)
    return found


def times(threads: int) -> dict[str, float]:
    """Return the figures of time on this many threads."""
    import torch  # noqa: PLC0415 - only the process that measures needs it

    from headwise import Causal, Collect, attention, observe  # noqa: PLC0415 - as torch

    torch.set_num_threads(threads)
    clock = time.thread_time if threads == 1 else time.perf_counter
    made = torch.randn(3, 1, HEADS, LENGTH, HEAD_DIM, generator=torch.Generator().manual_seed(3)).unbind()
    ways: dict[str, Callable[[], object]] = {
        "attention": lambda: attention(*made, mask=Causal(), impl="cpu"),
        "default": lambda: observe(*made, mask=Causal()),
        "map": lambda: observe(*made, mask=Causal(), collect=Collect(map_size=128)),
        "torch": partial(explicit_weights, *made),
    }
    turns = [{name: taken_by(way, clock) for name, way in ways.items()} for _ in range(TURNS + 1)][1:]
    return {
        **{f"{name}_ms": 1000 * statistics.median(turn[name] for turn in turns) for name in ways},
        "default_ratio": statistics.median(turn["default"] / turn["attention"] for turn in turns),
        "map_ratio": statistics.median(turn["map"] / turn["attention"] for turn in turns),
        "to_torch": statistics.median(turn["torch"] / turn["default"] for turn in turns),
    }


def taken_by(way: Callable[[], object], clock: Callable[[], float]) -> float:
    """Return the seconds that a call takes."""
    start = clock()
    way()
    return clock() - start


def explicit_weights(query: Any, key: Any, value: Any) -> tuple[Any, ...]:
    """Return output, entropy, largest weight and key, mass on the first, own and previous token, by torch."""
    import torch  # noqa: PLC0415 - as above

    scores = query @ key.mT * HEAD_DIM**-0.5
    hidden = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    weights = scores.masked_fill_(hidden, -torch.inf).softmax(-1)
    entropy = torch.special.entr(weights).sum(-1)
    diagonals = (weights.diagonal(offset, -2, -1) for offset in (0, -1))
    return (weights @ value, entropy, *weights.max(-1), weights[..., 0], *diagonals)


def peak() -> dict[str, float]:
    """Return how far observing the long text rises above its inputs, its output and evidence included."""
    import torch  # noqa: PLC0415 - as above

    from headwise import Causal, observe  # noqa: PLC0415 - as torch

    short, long = (torch.randn(3, 1, HEADS, length, HEAD_DIM).unbind() for length in (HEAD_DIM, LONG))
    observe(*short, mask=Causal())  # what is compiled, or read, is no part of it
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak is what it is now
    before = mebibytes("VmRSS")
    kept = observe(*long, mask=Causal())
    return {"peak_mebibytes": mebibytes("VmHWM") - before, "output_mebibytes": kept.output.nbytes / 2**20}


def mebibytes(name: str) -> float:
    """Return one figure of this process's memory; Linux tells it."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"))
    return int(found[1]) / 1024 if found else float("nan")


if __name__ == "__main__":
    json.dump(peak() if sys.argv[1] == "peak" else times(int(sys.argv[2])), sys.stdout)
