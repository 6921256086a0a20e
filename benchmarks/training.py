"""What training costs: attention forward and backward, beside torch's scaled_dot_product_attention.

Each work on each number of threads is measured in a process of its own, all ways in turn, one thread by its
own clock and several by wall time; each peak of memory in another. `ratio` is the time of torch's fastest way
that is right to that of headwise, the median of what each turn finds; it grows with speed, and there is none
where headwise is wrong. An error is the largest one, in eps of the dtype times the largest exact value.
`peak_share` is how far memory rises above its inputs during a step, against the way of torch's that rises the
least.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys

from benchmarks.training_ways import WORKS, ways_of
from headwise.verbs.bench.problem import make_problem

THREADS = sorted({1, len(os.sched_getaffinity(0))})
SEVERAL = [threads for threads in THREADS if threads > 1]
AT_LEAST = {"causal": (1.3, THREADS), "gqa": (1.4, THREADS), "window": (5.0, THREADS), "mqa": (2.0, SEVERAL)}
LEAST = {
    f"{work}_{threads}t_ratio": least for work, (least, counts) in AT_LEAST.items() for threads in counts
}
LIMITS = {f"{work}_peak_share": 1.0 for work in AT_LEAST}
# Memory is taken in whole pages and kept for later by the allocator, not the same way in every process.
PEAK_RUNS = 3


def measure() -> dict[str, float]:
    """Return milliseconds, ratios, shares and errors on one thread and on all, and the peaks of memory."""
    figures: dict[str, float] = {}
    for work in WORKS:
        for threads in THREADS:
            found = in_a_process("times", work, str(threads))
            figures |= {f"{work}_{threads}t_{name}": value for name, value in found.items()}
        figures |= {f"{work}_{name}": value for name, value in peaks_of(work).items()}
    return figures


def peaks_of(work: str) -> dict[str, float]:
    """Return the MiB by which each way rises above its inputs, and headwise's share of torch's least."""
    peaks = {way: median_peak(work, way) for way in ways_of(make_problem(WORKS[work]))}
    least = min(peak for way, peak in peaks.items() if way != "headwise")
    return {
        **{f"{way}_peak_mebibytes": peak for way, peak in peaks.items()},
        "peak_share": peaks["headwise"] / least,
    }


def median_peak(work: str, way: str) -> float:
    """Return the median of what fresh processes find."""
    return statistics.median(
        in_a_process("peak", work, str(THREADS[-1]), way)["mebibytes"] for _ in range(PEAK_RUNS)
    )


def in_a_process(*asked: str) -> dict[str, float]:
    """Return what a fresh process measures."""
    command = [sys.executable, "-m", "benchmarks.training_steps", *asked]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 - our own module
    found: dict[str, float] = json.loads(done.stdout)
    return found
