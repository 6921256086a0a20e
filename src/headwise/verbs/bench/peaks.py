"""What this machine can do at most, on the threads that are measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import torch

from headwise.kernels.probes import fma_rates, read, read_rates
from headwise.verbs.bench.backends import Prepared
from headwise.verbs.bench.problem import Problem
from headwise.verbs.bench.result import Peaks


def measure_peaks(threads: int) -> Peaks:
    """Return the peaks of this many threads at once.

    Nothing else on the machine adds to a thread's own clock. But memory is shared: while one of several
    threads is kept from running, the others reach what each reaches alone, so they go by the wall.
    """
    by_wall = time.perf_counter if threads > 1 else time.thread_time
    return Peaks(
        fma_flops=_together(fma_rates, threads, time.thread_time),
        read_bytes=_together(read_rates, threads, by_wall),
    )


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


def _together(probe: Callable[..., list[float]], threads: int, clock: Callable[[], float]) -> float:
    """Return the rate of the best run of this many threads, which all begin it together."""
    meet = Barrier(threads).wait
    with ThreadPoolExecutor(threads) as pool:
        found = [pool.submit(probe, meet=meet, clock=clock) for _ in range(threads)]
        return max(map(sum, zip(*(each.result() for each in found), strict=True)))
