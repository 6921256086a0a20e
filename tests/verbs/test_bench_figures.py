"""The arithmetic of `bench`: what is useful, how far off, whose turn, by which clock, who is the best."""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from headwise import reference
from headwise.verbs.bench import peaks, timing
from headwise.verbs.bench.backends import Prepared
from headwise.verbs.bench.compute import bench_works
from headwise.verbs.bench.exact import error_of, exact_output
from headwise.verbs.bench.problem import Problem, make_problem
from headwise.verbs.bench.result import Bench, Peaks, Row, Timing
from headwise.verbs.bench.timing import Reading, fair_clock, take_turns
from headwise.verbs.bench.works import WORKS, Work, works_named
from headwise.verbs.machine import Machine

from .bench_works import CAUSAL, EVERY_KIND, PADDED, WINDOW, Bent

PEAKS = Peaks(fma_flops=1e11, read_bytes=1e10)


@pytest.fixture(autouse=True)
def no_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwise.verbs.bench.compute.measure_peaks", lambda _: PEAKS)


def sees(work: Work, element: int, query: int, key: int) -> bool:
    """The masks once more, written apart from `headwise.masks`."""
    if work.lengths is not None and key >= work.lengths[element]:
        return False
    if work.causal and key > query:
        return False
    return work.window is None or query - key < work.window


@pytest.mark.parametrize("work", EVERY_KIND, ids=lambda work: work.name)
def test_useful_work_counts_what_is_visible_and_nothing_else(work: Work) -> None:
    problem = make_problem(work)
    visible = np.array(
        [
            [[sees(work, element, query, key) for key in range(work.kv_len)] for query in range(work.seq_len)]
            for element in range(work.batch)
        ]
    )
    assert problem.useful_flops == work.num_heads * visible.sum() * 4 * work.head_dim
    size = 2 if work.dtype == "bfloat16" else 4
    read = visible.any(axis=1).sum()  # keys and values that any row sees, each once
    assert problem.kv_bytes == 2 * read * work.num_kv_heads * work.head_dim * size
    shown = problem.visible().expand(work.batch, work.seq_len, work.kv_len).numpy()
    assert np.array_equal(shown, visible)


@pytest.mark.parametrize("work", EVERY_KIND, ids=lambda work: work.name)
@pytest.mark.parametrize("rows", [256, 17])
def test_the_exact_output_is_the_reference(work: Work, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwise.verbs.bench.exact.ROWS", rows)
    problem = make_problem(work)
    tensors = (tensor.double().numpy() for tensor in (problem.query, problem.key, problem.value))
    expected = reference.attention(*tensors, mask=problem.mask).output
    np.testing.assert_allclose(exact_output(problem).numpy(), expected, rtol=0, atol=1e-13)


def test_the_works_are_those_that_were_set() -> None:
    sizes = {
        (w.batch, w.num_heads, w.num_kv_heads, w.seq_len, w.kv_len, w.head_dim, w.mask_name, w.dtype)
        for w in WORKS
    }
    assert sizes == {
        (1, 8, 8, 2048, 2048, 64, "none", "float32"),
        (1, 16, 16, 1024, 1024, 128, "none", "float32"),
        (1, 8, 8, 512, 512, 64, "causal", "float32"),
        (1, 8, 8, 2048, 2048, 64, "causal", "float32"),
        (1, 16, 4, 1024, 1024, 128, "causal", "float32"),
        (1, 32, 32, 128, 128, 64, "causal", "float32"),
        (1, 8, 8, 8192, 8192, 64, "causal, window of 256", "float32"),
        (8, 8, 8, 1024, 1024, 64, "lengths 64 to 1024", "float32"),
        (1, 32, 8, 1, 4096, 128, "none", "float32"),
        (1, 32, 8, 1, 32768, 128, "none", "float32"),
        (1, 32, 32, 1, 4096, 128, "none", "float32"),
        (1, 8, 8, 2048, 2048, 64, "causal", "bfloat16"),
    }
    assert len(WORKS) == len({work.name for work in WORKS}) == 12
    assert works_named([]) == works_named(None) == WORKS


def drop_last_key(problem: Problem) -> torch.Tensor:
    shorter = replace(problem, intervals=replace(problem.intervals, stop=problem.intervals.stop - 1))
    return exact_output(shorter).float()


def test_a_dropped_key_is_told_from_rounding() -> None:
    problem = make_problem(replace(PADDED, lengths=(29, 31, 61)))
    exact = exact_output(problem)
    assert error_of(exact.float(), exact, "float32").within
    dropped = error_of(drop_last_key(problem), exact, "float32")
    assert not dropped.within
    assert dropped.largest == pytest.approx(float((drop_last_key(problem) - exact).abs().max()))
    assert dropped.relative == pytest.approx(dropped.largest / float(exact.abs().max()))
    assert not error_of(exact[..., 1:], exact, "float32").within


def wrong(output: torch.Tensor) -> torch.Tensor:
    return output * 1.001


def with_nan(output: torch.Tensor) -> torch.Tensor:
    return output.masked_fill(torch.arange(output.shape[2])[:, None] == 3, math.nan)


def turned(output: torch.Tensor) -> torch.Tensor:
    return output.transpose(1, 2)


@pytest.mark.parametrize("bend", [wrong, with_nan, turned])
def test_a_wrong_backend_shows_its_error_and_is_no_peer(bend: Callable[[torch.Tensor], torch.Tensor]) -> None:
    backends = [Bent("headwise"), Bent("wrong", bend), Bent("right")]
    found = bench_works([CAUSAL], backends, threads=1, repeat=3)
    (row,) = found.rows
    assert [timing.is_right for timing in row.timings] == [True, False, True]
    assert not row.timings[1].relative_error < 9e-4
    assert row.best_peer == row.timings[2]
    assert found.is_right
    (alone,) = bench_works([CAUSAL], backends[:2], threads=1, repeat=3).rows
    assert (alone.best_peer, alone.ratio) == (None, None)


def test_headwise_itself_may_be_the_wrong_one() -> None:
    found = bench_works([CAUSAL, WINDOW], [Bent("headwise", wrong), Bent("right")], threads=1, repeat=1)
    assert not found.is_right
    assert [row.ratio for row in found.rows] == [None, None]


def a_timing(backend: str, seconds: float) -> Timing:
    return Timing(backend, seconds, 1, 0.0, 0.0, is_right=True, form="")


def test_ratio_and_shares() -> None:
    timings = (a_timing("headwise", 0.5), a_timing("slow", 2.0), a_timing("fast", 0.75))
    row = Row(
        CAUSAL, "thread", useful_flops=10**10, kv_bytes=10**9, read_seconds=0.1, timings=timings, absences=()
    )
    found = Bench(Machine("", 1, 1, 0.0, {}), 1, PEAKS, (row,))
    assert row.best_peer == timings[2]
    assert row.ratio == 1.5
    assert found.fma_share(row) == pytest.approx(0.2)
    assert found.read_share(row) == pytest.approx(0.2)


def test_peaks_of_several_threads_are_taken_at_once_and_the_higher_one_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inside = threading.Barrier(3, timeout=30)
    clocks: list[Callable[[], float]] = []

    def probe(*, meet: Callable[[], int], clock: Callable[[], float]) -> list[float]:
        if inside.wait() == 0:  # comes back only if three threads are in here
            clocks.append(clock)
        # Who is alone for a while is fast, but never the sum of such moments is a peak.
        return [9.0 if meet() == run else 2.5 for run in range(3)] + [3.0]

    monkeypatch.setattr(peaks, "fma_rates", probe)
    monkeypatch.setattr(peaks, "read_rates", probe)
    found = peaks.measure_peaks(3)
    assert clocks == [time.thread_time, time.perf_counter]  # memory is shared
    assert found == Peaks(fma_flops=14.0, read_bytes=14.0)
    assert peaks.higher(found, Peaks(19.0, 1.0)) == Peaks(19.0, 14.0)


def test_backends_take_turns_and_slow_ones_sit_some_out(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    costs = {"a": 0.1, "b": 0.2, "c": 5.0}  # seconds, of which each backend gets 0.8

    def timed(prepared: Prepared, *, after: float, warmed: bool) -> Reading:
        assert not warmed
        calls.append(prepared.form)
        return Reading(*[costs[prepared.form]] * 3)

    monkeypatch.setattr(timing, "timed", timed)
    prepared = {name: Prepared(call=dict, output=torch.as_tensor, form=name) for name in costs}
    readings = take_turns(prepared, repeat=None, pause=False)
    assert {name: len(taken) for name, taken in readings.items()} == {"a": 8, "b": 4, "c": 1}
    assert "".join(calls) == "abcaabaabaaba"
    calls.clear()
    take_turns(prepared, repeat=2, pause=False)
    assert "".join(calls) == "abcabc"


def test_what_is_quick_is_timed_behind_calls_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    costs = {"a": 0.001, "b": 0.1, "c": 0.002}

    def spend(name: str) -> None:
        calls.append(name)
        # Cold after others, who swept the caches.
        now[0] += costs[name] * (2 if calls[-2:-1] != [name] else 1)

    prepared = {
        name: Prepared(call=lambda name=name: spend(name), output=torch.as_tensor, form=name)
        for name in costs
    }
    readings = take_turns(prepared, repeat=2, pause=False)
    assert "".join(calls) == "abc" + "aaaccc" + "aaabccc"
    walls = {name: [reading.wall for reading in taken] for name, taken in readings.items()}
    assert walls == {
        "a": pytest.approx([0.001] * 2), "b": pytest.approx([0.2] * 2), "c": pytest.approx([0.002] * 2)
    }  # fmt: skip


@pytest.mark.parametrize(("seconds", "repeats"), [(1e-6, 40), (0.1, 8), (0.7, 3), (1.5, 1), (9.0, 1)])
def test_how_often_follows_how_long(seconds: float, repeats: int) -> None:
    assert timing.repeats_for(seconds) == repeats


def test_a_backend_that_works_elsewhere_changes_the_clock_of_all() -> None:
    here, elsewhere = Reading(0.10, 0.101, 0.2), Reading(0.001, 0.09, 0.2)
    assert fair_clock({"a": [here], "b": [here]}, threads=1) == "thread"
    assert fair_clock({"a": [here], "b": [elsewhere]}, threads=1) == "process"
    assert fair_clock({"a": [here], "b": [here]}, threads=2) == "wall"
    # The clocks themselves cost something, which shows in very short calls.
    assert fair_clock({"a": [Reading(5e-6, 9e-6, 9e-6)]}, threads=1) == "thread"


def test_a_call_is_timed_within_its_surroundings() -> None:
    (reading,) = take_turns(
        {"busy": Prepared(call=lambda: sum(range(200_000)), output=torch.as_tensor, form="")},
        repeat=1,
        pause=False,
    )["busy"]
    assert 0 < reading.thread <= reading.process + 1e-3
    assert reading.thread <= reading.wall + 1e-3


@pytest.mark.parametrize("threads", [1, 3])
def test_a_plain_read_is_of_the_visible_keys_and_values_once(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = make_problem(CAUSAL)
    sizes: list[int] = []
    monkeypatch.setattr(peaks, "read", lambda numbers: sizes.append(numbers.nbytes))
    peaks.plain_read(problem, threads).call()
    assert (len(sizes), sum(sizes)) == (threads, problem.kv_bytes)
