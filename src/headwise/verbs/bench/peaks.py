"""What this machine can do at most, on the threads that are measured."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from headwise.kernels.probes import fma_peak, read, read_bandwidth
from headwise.verbs.bench.backends import Prepared
from headwise.verbs.bench.problem import Problem
from headwise.verbs.bench.result import Peaks


def measure_peaks(threads: int) -> Peaks:
    """Return the peaks of this many threads at once."""
    return Peaks(fma_flops=_together(fma_peak, threads), read_bytes=_together(read_bandwidth, threads))


def higher(one: Peaks, other: Peaks) -> Peaks:
    """Return the higher of two measurements: a peak is what was reached, and a busy moment hides it."""
    return Peaks(max(one.fma_flops, other.fma_flops), max(one.read_bytes, other.read_bytes))


def plain_read(problem: Problem, threads: int) -> Prepared:
    """Return a plain read of as many bytes as the problem's visible keys and values have, shared by threads.

    Taken in turn with the backends: how fast memory is changes from second to second on a shared machine.
    """
    numbers = torch.cat(
        [part.reshape(-1).view(torch.float32) for part in (problem.key, problem.value)]
    ).numpy()
    parts = np.array_split(numbers[: problem.kv_bytes // 4], threads)
    pool = ThreadPoolExecutor(threads)

    def call() -> None:
        others = [pool.submit(read, part) for part in parts[1:]]
        read(parts[0])
        for other in others:
            other.result()

    return Prepared(call, lambda _: problem.value, "a plain read")


def _together(probe: Callable[[], float], threads: int) -> float:
    """Return the sum of a probe that runs in this many threads at the same time."""
    if threads == 1:
        return probe()
    with ThreadPoolExecutor(threads) as pool:
        return sum(each.result() for each in [pool.submit(probe) for _ in range(threads)])
