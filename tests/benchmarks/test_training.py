"""What the benchmark of training counts and compares; that its own numbers are fast is no part of it."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from benchmarks.training_steps import Taken, growth, ratios, speeds, step, times
from benchmarks.training_ways import WORKS, Way, exact_gradients, leaves_of, upstream_of, ways_of
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from benchmarks import training, training_steps
from headwise import ops
from headwise.verbs.bench.problem import make_problem
from headwise.verbs.bench.result import Peaks
from headwise.verbs.bench.timing import Reading
from headwise.verbs.bench.works import Work

from ..naive import gradients, naive_attention
from ..verbs.bench_works import BFLOAT16, CAUSAL, FULL, GQA, PADDED, WINDOW

SMALL = (FULL, CAUSAL, GQA, WINDOW, PADDED, BFLOAT16)
every_small_work = pytest.mark.parametrize("work", SMALL, ids=lambda work: work.name)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take as few turns as there may be, and leave the machine's peaks to their own tests."""
    monkeypatch.setattr(training_steps, "SECONDS", 0.0)
    monkeypatch.setattr(training_steps, "measure_peaks", lambda _: Peaks(fma_flops=1e11, read_bytes=1e10))


def test_the_works_are_those_that_were_set() -> None:
    sizes = {
        name: (w.batch, w.num_heads, w.num_kv_heads, w.seq_len, w.kv_len, w.head_dim, w.mask_name, w.dtype)
        for name, w in WORKS.items()
    }
    assert sizes == {
        "causal": (1, 8, 8, 1024, 1024, 64, "causal", "float32"),
        "gqa": (1, 16, 4, 1024, 1024, 128, "causal", "float32"),
        "mqa": (1, 16, 1, 1024, 1024, 64, "causal", "float32"),
        "mqa_full": (1, 16, 1, 1024, 1024, 64, "none", "float32"),
        "window": (1, 8, 8, 4096, 4096, 64, "causal, window of 256", "float32"),
        "full": (1, 8, 8, 1024, 1024, 64, "none", "float32"),
        "causal_bf16": (1, 8, 8, 1024, 1024, 64, "causal", "bfloat16"),
    }


def test_every_limit_is_a_limit_of_something_that_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"gqa": GQA, "window": WINDOW}

    peaks = {"headwise": 3.0, "torch_grouped": 2.0, "torch_repeated": 8.0}

    def in_this_process(figure: str, work: str, threads: str, *way: str) -> dict[str, float]:
        if figure == "peak":
            return {"mebibytes": peaks.get(way[0], 4.0)}
        return times(small.get(work, CAUSAL), 1)

    monkeypatch.setattr(training, "in_a_process", in_this_process)
    figures = training.measure()
    assert set(training.LEAST) | set(training.LIMITS) <= set(figures)
    assert {re.sub(r"_\d+t_", " ", name) for name in training.LEAST} == {
        f"{work} ratio" for work in ("causal", "gqa", "mqa", "window") if work != "mqa" or training.SEVERAL
    }
    assert figures["gqa_peak_share"] == 1.5  # of the way of torch's that takes the least
    assert figures["gqa_torch_repeated_peak_mebibytes"] == 8.0
    assert all(math.isfinite(figure) for figure in figures.values())


@every_small_work
def test_exact_gradients_are_those_of_naive_attention_in_float64(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.training_ways.ROWS", 17)
    problem = make_problem(work)
    doubles = [tensor.double() for tensor in (problem.query, problem.key, problem.value)]
    upstream = upstream_of(problem)
    expected = gradients(
        lambda *made: naive_attention(*made, mask=problem.mask).output, doubles, upstream.double()
    )
    for found, right in zip(exact_gradients(problem, upstream), expected, strict=True):
        torch.testing.assert_close(found, right, rtol=0, atol=1e-12)


@every_small_work
def test_every_way_is_right_and_all_of_it_is_told(work: Work) -> None:
    figures = times(work, 1)
    of_torch = {"gqa": ("torch_grouped", "torch_repeated")}
    of_torch |= dict.fromkeys(("window", "padded"), ("torch_boolean", "torch_additive"))
    ways = ("headwise", *of_torch.get(work.name, ("torch",)))
    told = ["ms", *(f"{part}_{figure}" for part in ("forward", "backward") for figure in ("ms", "fma_share"))]
    errors = [f"{tensor}_error_eps" for tensor in ("query", "key", "value")]
    assert set(figures) == {
        "fma_gflops",
        "ratio",
        "forward_ratio",
        "backward_ratio",
        *(f"ratio_to_{way}" for way in ways[1:]),
        *(f"{way}_{figure}" for way in ways for figure in (*told, *errors)),
    }
    for way in ways:
        for error in errors:
            # Sums of sums of up to 149 terms: some eps in float32; in bfloat16 some roundings of the result.
            assert 0 < figures[f"{way}_{error}"] < 40


@pytest.mark.parametrize("bent", ["headwise", "torch_boolean", "torch_additive"])
def test_what_is_wrong_is_not_compared(bent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def ways(problem: Any) -> dict[str, Way]:
        sound = ways_of(problem)
        return sound | {bent: lambda *made: 1.001 * sound[bent](*made)}

    monkeypatch.setattr(training_steps, "ways_of", ways)
    figures = times(WINDOW, 1)
    assert figures[f"{bent}_value_error_eps"] * torch.finfo(torch.float32).eps == pytest.approx(
        0.001, rel=0.01
    )
    assert ("ratio" in figures) is (bent != "headwise")


def test_the_best_way_that_is_right_is_compared_turn_by_turn() -> None:
    def taken(forward: float, backward: float) -> Taken:
        return Taken(Reading(9.0, forward, 9.0), Reading(9.0, backward, 9.0))

    turns = [
        {"headwise": taken(1, 1), "grouped": taken(2, 4), "repeated": taken(1, 3), "wrong": taken(1, 1)},
        {"headwise": taken(2, 2), "grouped": taken(3, 5), "repeated": taken(2, 4), "wrong": taken(1, 1)},
        {"headwise": taken(1, 2), "grouped": taken(3, 6), "repeated": taken(3, 3), "wrong": taken(1, 1)},
    ]
    found = ratios(turns, "process", ["headwise", "grouped", "repeated"])
    assert found == {
        "ratio": 2.0,
        "forward_ratio": 1.0,
        "backward_ratio": 2.0,
        "ratio_to_grouped": 3.0,
        "ratio_to_repeated": 2.0,
    }
    assert ratios(turns, "process", ["grouped", "repeated"]) == {}
    assert ratios(turns, "process", ["headwise"]) == {}


def test_shares_count_two_products_forwards_and_five_backwards() -> None:
    taken = [Taken(Reading(0.0, 0.0, wall), Reading(0.0, 0.0, 5 * wall)) for wall in (0.2, 0.1, 7.0)]
    found = speeds(taken, "wall", forward_flops=4_000, fma_flops=100_000.0)
    assert found == pytest.approx(
        {
            "ms": 1200.0,
            "forward_ms": 200.0,
            "forward_fma_share": 0.2,
            "backward_ms": 1000.0,
            "backward_fma_share": 0.1,
        }
    )


def test_forward_and_backward_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    class Noted(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            done.append("forward")
            return query + key + value

        @staticmethod
        def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, ...]:
            done.append("backward")
            return grad_output, grad_output, grad_output

    def moment() -> Reading:
        seconds = {0: 0.0, 1: 2.0, 2: 9.0}[len(done)]
        return Reading(seconds, 10 * seconds, 100 * seconds)

    monkeypatch.setattr(training_steps, "moment", moment)
    problem = make_problem(FULL)
    taken, found = step(Noted.apply, leaves_of(problem), upstream_of(problem))
    assert taken == Taken(forward=Reading(2.0, 20.0, 200.0), backward=Reading(7.0, 70.0, 700.0))
    assert taken.whole == Reading(9.0, 90.0, 900.0)
    assert all(torch.equal(gradient, upstream_of(problem)) for gradient in found)


@pytest.mark.parametrize("mebibytes", [40, 120])
@pytest.mark.parametrize("around", [torch.zeros_like, lambda large: large.mul_(2.0)], ids=["new", "in-place"])
def test_growth_is_what_a_step_takes_beyond_its_inputs(
    mebibytes: int, around: Callable[[Tensor], Tensor]
) -> None:
    problem = make_problem(dataclasses.replace(FULL, seq_len=2048, kv_len=2048))
    leaves, upstream = leaves_of(problem), upstream_of(problem)
    inputs = 4 * upstream.nbytes / 2**20

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        large = torch.ones(mebibytes * 2**18)
        return query + key + value + around(large)[:1]

    several = 2 if around is torch.zeros_like else 1
    assert abs(growth(attend, leaves, upstream) - several * mebibytes) < 2 * inputs


def test_flex_attention_does_not_train_here_and_so_is_no_peer() -> None:
    leaves = leaves_of(make_problem(FULL))
    with pytest.raises(NotImplementedError, match="does not support backward on CPU"):
        flex_attention(*leaves)


def test_headwise_is_measured_as_a_user_calls_it() -> None:
    problem = make_problem(GQA)
    leaves, upstream = leaves_of(problem), upstream_of(problem)
    _, found = step(ways_of(problem)["headwise"], leaves, upstream)
    output = ops.attention(*leaves, mask=problem.mask)
    assert all(map(torch.equal, found, torch.autograd.grad(output, leaves, upstream)))
