"""Steps of training, timed and weighed: what `benchmarks.training` runs in processes of its own."""

from __future__ import annotations

import ctypes
import gc
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.observe import mebibytes
from benchmarks.training_ways import WORKS, Way, exact_gradients, leaves_of, upstream_of, ways_of
from headwise.verbs.bench.exact import Error, error_of
from headwise.verbs.bench.heap import settle_heap
from headwise.verbs.bench.peaks import higher, measure_peaks
from headwise.verbs.bench.problem import Problem, make_problem
from headwise.verbs.bench.result import Clock
from headwise.verbs.bench.timing import PAUSE_SECONDS, Reading, fair_clock
from headwise.verbs.bench.works import Work

TENSORS = ("query", "key", "value")
# Matrix products: scores and output; then scores again, and the gradients of weights, query, key and value.
PRODUCTS = {"forward": 2, "backward": 5}
LEAST_TURNS, MOST_TURNS, SECONDS = 5, 25, 4.0


class Taken(NamedTuple):
    """What one step took."""

    forward: Reading
    backward: Reading

    @property
    def whole(self) -> Reading:
        """Forward and backward together."""
        return Reading(*(sum(pair) for pair in zip(*self, strict=True)))


def times(work: Work, threads: int) -> dict[str, float]:
    """Return the figures of time and error of one work on this many threads."""
    settle_heap()
    torch.set_num_threads(threads)
    problem = make_problem(work)
    peaks = measure_peaks(threads)
    ways = ways_of(problem)
    errors = errors_of(ways, problem)
    gc.collect()
    turns = take_turns(ways, problem, pause=PAUSE_SECONDS if threads > 1 else 0.0)
    clock = fair_clock({way: [turn[way].whole for turn in turns] for way in ways}, threads=threads)
    fma_flops = higher(peaks, measure_peaks(threads)).fma_flops
    figures = {"fma_gflops": fma_flops / 1e9}
    for way in ways:
        found = speeds([turn[way] for turn in turns], clock, problem.useful_flops, fma_flops)
        found |= {f"{name}_error_eps": in_eps(error, work) for name, error in errors[way].items()}
        figures |= {f"{way}_{name}": value for name, value in found.items()}
    is_right = {way: all(error.within for error in of_way.values()) for way, of_way in errors.items()}
    return figures | ratios(turns, clock, [way for way in ways if is_right[way]])


def errors_of(ways: Mapping[str, Way], problem: Problem) -> dict[str, dict[str, Error]]:
    """Return how far every gradient of every way is off."""
    leaves, upstream = leaves_of(problem), upstream_of(problem)
    exact = exact_gradients(problem, upstream)
    return {
        name: {
            tensor: error_of(gradient, right, problem.work.dtype)
            for tensor, gradient, right in zip(TENSORS, step(way, leaves, upstream)[1], exact, strict=True)
        }
        for name, way in ways.items()
    }


def in_eps(error: Error, work: Work) -> float:
    """Return a relative error in units of the dtype's eps."""
    return error.relative / torch.finfo(getattr(torch, work.dtype)).eps


def take_turns(ways: Mapping[str, Way], problem: Problem, *, pause: float) -> list[dict[str, Taken]]:
    """Return what every way took, turn by turn: as many as fit into some seconds, after one that warms up."""
    leaves, upstream = leaves_of(problem), upstream_of(problem)

    def turn() -> dict[str, Taken]:
        taken = {}
        for name, way in ways.items():
            time.sleep(pause)
            taken[name], _ = step(way, leaves, upstream)
        return taken

    seconds = sum(taken.whole.wall for taken in turn().values())
    return [turn() for _ in range(max(LEAST_TURNS, min(MOST_TURNS, int(SECONDS / seconds))))]


def step(way: Way, leaves: Sequence[Tensor], upstream: Tensor) -> tuple[Taken, tuple[Tensor, ...]]:
    """Return what a step takes, and its gradients."""
    start = moment()
    output = way(*leaves)
    middle = moment()
    gradients = torch.autograd.grad(output, leaves, upstream)
    return Taken(between(start, middle), between(middle, moment())), gradients


def moment() -> Reading:
    """Return what every clock shows."""
    return Reading(thread=time.thread_time(), process=time.process_time(), wall=time.perf_counter())


def between(start: Reading, end: Reading) -> Reading:
    """Return the seconds from one moment to another."""
    return Reading(*(later - earlier for earlier, later in zip(start, end, strict=True)))


def speeds(taken: Sequence[Taken], clock: Clock, forward_flops: int, fma_flops: float) -> dict[str, float]:
    """Return one way's milliseconds, and which share of the multiply-add peak its useful work reaches."""
    figures = {"ms": 1000 * median_seconds(taken, "whole", clock)}
    for part, products in PRODUCTS.items():
        seconds = median_seconds(taken, part, clock)
        flops = forward_flops * products / PRODUCTS["forward"]
        figures |= {f"{part}_ms": 1000 * seconds, f"{part}_fma_share": flops / seconds / fma_flops}
    return figures


def median_seconds(taken: Sequence[Taken], part: str, clock: Clock) -> float:
    """Return the median of a part of the steps by one clock."""
    return statistics.median(seconds_of(step, part, clock) for step in taken)


def seconds_of(taken: Taken, part: str, clock: Clock) -> float:
    """Return the seconds of a part of one step."""
    seconds: float = getattr(getattr(taken, part), clock)
    return seconds


def ratios(turns: Sequence[dict[str, Taken]], clock: Clock, right: Sequence[str]) -> dict[str, float]:
    """Return how many times as fast headwise is as the best other way and as each; none if it is wrong."""
    others = [way for way in right if way != "headwise"]
    if "headwise" not in right or not others:
        return {}

    def ratio_to(way: str, part: str) -> float:
        return statistics.median(
            seconds_of(turn[way], part, clock) / seconds_of(turn["headwise"], part, clock) for turn in turns
        )

    best = min(others, key=lambda way: ratio_to(way, "whole"))
    return {
        "ratio": ratio_to(best, "whole"),
        **{f"{part}_ratio": ratio_to(best, part) for part in PRODUCTS},
        **{f"ratio_to_{way}": ratio_to(way, "whole") for way in others},
    }


def peak(work: Work, threads: int, way: str) -> dict[str, float]:
    """Return the MiB by which a step's memory rises above its inputs, output and gradients included."""
    torch.set_num_threads(threads)
    short = replace(work, seq_len=work.seq_len // 4, kv_len=work.kv_len // 4)
    problem = make_problem(short)  # what is compiled, or read, is no part of it
    step(ways_of(problem)[way], leaves_of(problem), upstream_of(problem))
    problem = make_problem(work)
    attend, leaves, upstream = ways_of(problem)[way], leaves_of(problem), upstream_of(problem)
    return {"mebibytes": growth(attend, leaves, upstream)}


def growth(attend: Way, leaves: Sequence[Tensor], upstream: Tensor) -> float:
    """Return the MiB by which the memory of this process rises during a step."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what others freed would be taken first, and not be seen
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak is what it is now
    before = mebibytes("VmRSS")
    step(attend, leaves, upstream)
    return mebibytes("VmHWM") - before


if __name__ == "__main__":
    figure, name, count, *way = sys.argv[1:]
    asked = WORKS[name], int(count)
    json.dump(peak(*asked, *way) if figure == "peak" else times(*asked), sys.stdout)
