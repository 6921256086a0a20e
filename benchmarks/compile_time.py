"""How long the first plain causal float32 call takes in a fresh process: compiling the kernel, or reading it.

Few rows and many rows have an entry of their own, so each is asked for; imports are told apart.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

COLD_RUNS = 3
CACHED_RUNS = 7
CALLS = {"prompt": 128, "token": 1}
LIMITS = {
    **{f"{call}_compiled_seconds": 12.0 for call in CALLS},
    **{f"{call}_cached_seconds": 0.6 for call in CALLS},
}

FIRST_CALL = """
import json, sys, time

def seconds(act):
    start = time.perf_counter()
    act()
    return time.perf_counter() - start

found = {}
found["import_torch"] = seconds(lambda: __import__("torch"))
found["import_numba"] = seconds(lambda: __import__("numba"))
found["import_headwise"] = seconds(lambda: __import__("headwise.ops"))
import torch
from headwise import masks, ops
key, value = torch.randn(2, 1, 8, 128, 64)
query = torch.randn(1, 8, int(sys.argv[1]), 64)
found["call"] = seconds(lambda: ops.attention(query, key, value, mask=masks.Causal(), impl="cpu"))
print(json.dumps(found))
"""


def measure() -> dict[str, float]:
    """Return the median seconds of the call, compiled and read, and of the imports before it."""
    figures: dict[str, float] = {}
    for call, seq_len in CALLS.items():
        cold = [first_call(seq_len) for _ in range(COLD_RUNS)]
        cached = first_calls_from_one_cache(seq_len)
        figures[f"{call}_compiled_seconds"] = median(cold, "call")
        figures[f"{call}_cached_seconds"] = median(cached, "call")
        for name in ("import_torch", "import_numba", "import_headwise"):
            figures[f"{call}_{name}_seconds"] = median(cached, name)
    return figures


def median(runs: list[dict[str, float]], name: str) -> float:
    """Return the median of one figure over the runs."""
    return statistics.median(run[name] for run in runs)


def first_call(seq_len: int) -> dict[str, float]:
    """Return the seconds in a process that finds nothing compiled."""
    with tempfile.TemporaryDirectory() as cache:
        return in_a_process(seq_len, Path(cache))


def first_calls_from_one_cache(seq_len: int) -> list[dict[str, float]]:
    """Return the seconds in processes that find all compiled, after one that compiles it."""
    with tempfile.TemporaryDirectory() as cache:
        return [in_a_process(seq_len, Path(cache)) for _ in range(CACHED_RUNS + 1)][1:]


def in_a_process(seq_len: int, cache: Path) -> dict[str, float]:
    """Return what a fresh process measures that keeps compiled code in `cache`."""
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-c", FIRST_CALL, str(seq_len)],
        env=os.environ | {"NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)
