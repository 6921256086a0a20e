"""A whole model: SmolLM2-135M reads 1,024 tokens and writes 64, attached to headwise and under its own sdpa.

Each number of threads is measured in a process of its own, both ways in turn, one thread by its own clock and
several by wall time. A ratio is headwise's time to that of sdpa: below 1 headwise is faster.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

PROMPT, WRITTEN = 1024, 64
TURNS = 5
THREADS = sorted({1, len(os.sched_getaffinity(0))})
LIMITS = {f"{threads}t_ratio": 1.0 for threads in THREADS}


def measure() -> dict[str, float]:
    """Return the seconds of both ways and their ratio, for the whole and for the prompt alone."""
    figures: dict[str, float] = {}
    for threads in THREADS:
        command = [sys.executable, "-m", "benchmarks.whole_model", str(threads)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 - our own module
        figures |= {f"{threads}t_{name}": value for name, value in json.loads(done.stdout).items()}
    return figures


def figures_of(threads: int) -> dict[str, float]:
    """Return the figures on this many threads."""
    import torch  # noqa: PLC0415 - only the process that measures needs it

    from headwise.models.attachment import attach  # noqa: PLC0415 - as torch
    from headwise.models.opening.opened_model import open_model  # noqa: PLC0415 - as torch

    torch.set_num_threads(threads)
    clock = time.thread_time if threads == 1 else time.perf_counter
    model = open_model("smollm2-135m").model
    model.set_attn_implementation("sdpa")
    ids = torch.randint(100, 40_000, (1, PROMPT), generator=torch.Generator().manual_seed(3))
    ways: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "sdpa": nullcontext,
        "headwise": lambda: attach(model),
    }
    seconds: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(TURNS + 1):  # the first turn warms up
        for way, around in ways.items():
            with around():
                seconds[way].append(generate(model, ids, clock))
    found = {
        way: [statistics.median(part) for part in zip(*turns[1:], strict=True)]
        for way, turns in seconds.items()
    }
    return {
        **{f"{way}_seconds": whole for way, (_, whole) in found.items()},
        **{f"{way}_prompt_seconds": prompt for way, (prompt, _) in found.items()},
        "ratio": found["headwise"][1] / found["sdpa"][1],
        "prompt_ratio": found["headwise"][0] / found["sdpa"][0],
    }


def generate(model: Any, ids: Any, clock: Callable[[], float]) -> tuple[float, float]:
    """Return the seconds to read the prompt and write one token, and to read it and write all tokens."""
    options = {"do_sample": False, "use_cache": True, "pad_token_id": 0}
    moments = [clock()]
    for count in (1, WRITTEN):
        model.generate(
            ids, attention_mask=ids.new_ones(ids.shape), max_new_tokens=count, min_new_tokens=count, **options
        )
        moments.append(clock())
    return moments[1] - moments[0], moments[2] - moments[1]


if __name__ == "__main__":
    json.dump(figures_of(int(sys.argv[1])), sys.stdout)
