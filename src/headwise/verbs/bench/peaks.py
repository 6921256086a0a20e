"""What this machine can do at most, on the threads that are measured."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from headwise.kernels.probes import fma_peak, read_bandwidth
from headwise.verbs.bench.result import Peaks


def measure_peaks(threads: int) -> Peaks:
    """Return the peaks of this many threads at once."""
    return Peaks(fma_flops=_together(fma_peak, threads), read_bytes=_together(read_bandwidth, threads))


def higher(one: Peaks, other: Peaks) -> Peaks:
    """Return the higher of two measurements: a peak is what was reached, and a busy moment hides it."""
    return Peaks(max(one.fma_flops, other.fma_flops), max(one.read_bytes, other.read_bytes))


def _together(probe: Callable[[], float], threads: int) -> float:
    """Return the sum of a probe that runs in this many threads at the same time."""
    if threads == 1:
        return probe()
    with ThreadPoolExecutor(threads) as pool:
        return sum(each.result() for each in [pool.submit(probe) for _ in range(threads)])
