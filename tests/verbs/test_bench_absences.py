"""Whatever keeps a backend from running is told in one line, and stops nobody else."""

import sys
from collections.abc import Callable

import pytest
import torch
from torch._inductor import config

from headwise.errors import ArgumentError
from headwise.verbs.bench.backends import BACKENDS, Backend, Prepared, backend
from headwise.verbs.bench.backends.jax_xla import JaxXla
from headwise.verbs.bench.compute import bench, bench_works
from headwise.verbs.bench.problem import Problem
from headwise.verbs.bench.result import Peaks, Row
from headwise.verbs.bench.works import WORKS
from headwise.verbs.machine import usable_cpus

from .bench_works import CAUSAL, Bent

BY_NAME = {each.name: each for each in BACKENDS}


@pytest.fixture(autouse=True)
def no_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwise.verbs.bench.compute.measure_peaks", lambda _: Peaks(1e11, 1e10))


def row_with(peer: Backend) -> Row:
    return bench_works([CAUSAL], [Bent("headwise"), peer, Bent("last")], threads=1, repeat=1).rows[0]


def reason_of(peer: Backend) -> str:
    row = row_with(peer)
    assert [timing.backend for timing in row.timings] == ["headwise", "last"]
    (absence,) = row.absences
    assert absence.backend == peer.name
    return absence.reason


@pytest.mark.parametrize(
    ("name", "module", "package"),
    [
        ("onnxruntime", "onnxruntime", "ONNX Runtime"),
        ("onnxruntime", "onnx", "ONNX"),
        ("jax", "jax", "JAX"),
    ],
)
def test_a_missing_package_is_named_with_what_brings_it(
    name: str, module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # this is how Python remembers what cannot be imported
    peer = JaxXla() if name == "jax" else BY_NAME[name]
    assert reason_of(peer) == f"{package} is not installed; pip install 'headwise[bench]'"


def test_without_a_compiler_flex_attention_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config.cpp, "cxx", (None, "no-such-compiler"))
    with config.patch(force_disable_caches=True):  # or what was compiled before is found
        assert reason_of(BY_NAME["flex_attention"]) == (
            "torch.compile found no working C++ compiler; install g++"
        )


def test_jax_of_somebody_else_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", torch)
    assert reason_of(JaxXla()) == "JAX was started before, on threads of its own; run it in a new process"


@pytest.mark.parametrize("name", ["torch_math", "jax"])
def test_who_stores_all_scores_is_kept_from_filling_the_memory(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "free_memory", lambda: 10**9)
    assert reason_of(BY_NAME[name]) == "it stores every score: that takes 1.1 GB, and 1.0 GB are free"
    monkeypatch.setattr(backend, "free_memory", lambda: None)  # not told here
    assert not row_with(BY_NAME[name]).absences


class Failing(Backend):
    name = label = "failing"

    def __init__(self, fail: Callable[[], None]) -> None:
        self.fail = fail

    def prepare(self, problem: Problem, threads: int) -> Prepared:
        return Prepared(call=self.fail, output=torch.as_tensor, form="")


def overflow() -> None:
    raise RuntimeError("\n  no room in the drum\nand more")


def test_a_peer_that_fails_is_told_in_one_line() -> None:
    assert reason_of(Failing(overflow)) == "it failed: RuntimeError: no room in the drum"


def test_headwise_failing_is_no_absence() -> None:
    with pytest.raises(RuntimeError, match="no room in the drum"):
        bench_works([CAUSAL], [Failing(overflow), Bent("peer")], threads=1, repeat=1)


def test_an_operator_that_fits_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwise.verbs.bench.backends.onnx_runtime.graphs_for", lambda _: [])
    assert reason_of(BY_NAME["onnxruntime"]) == "it has no operator for this mask"


def test_wrong_requests_are_refused_before_anything_is_timed() -> None:
    listed = ", ".join(work.name for work in WORKS)
    with pytest.raises(ArgumentError, match=f"^work 'causal' is unknown; there are {listed}$"):
        bench(works=["causal-512", "causal"])
    usable = usable_cpus()
    with pytest.raises(
        ArgumentError,
        match=rf"^threads={usable + 1} is more than the {usable} CPUs this process may use; use {usable}$",
    ):
        bench(threads=usable + 1)
    with pytest.raises(ArgumentError, match="threads=0 must be at least 1"):
        bench(threads=0)
    with pytest.raises(ArgumentError, match="repeat=0 must be at least 1"):
        bench(repeat=0)
