import dataclasses
import time

import pytest
import torch

from headwise.verbs.bench.backends import BACKENDS, PAUSE_SECONDS, Prepared, onnx_runtime
from headwise.verbs.bench.backends.onnx_graphs import graphs_for
from headwise.verbs.bench.backends.onnx_runtime import OnnxRuntime
from headwise.verbs.bench.compute import bench_works
from headwise.verbs.bench.exact import error_of, exact_output
from headwise.verbs.bench.problem import make_problem
from headwise.verbs.bench.result import Bench, Row
from headwise.verbs.bench.works import Work
from headwise.verbs.libraries import required

from .bench_works import BFLOAT16, DECODE, EVERY_KIND, FULL

NAMES = ["headwise", "torch_sdpa", "torch_math", "flex_attention", "onnxruntime", "jax"]
IN_FLOAT32 = [work for work in EVERY_KIND if work is not BFLOAT16]
NO_BFLOAT16 = "its attention operators take no bfloat16 on a CPU"


@pytest.fixture(scope="module")
def found() -> Bench:
    return bench_works(EVERY_KIND, BACKENDS, threads=1, repeat=2)


@pytest.fixture
def rows(found: Bench) -> dict[str, Row]:
    return {row.work.name: row for row in found.rows}


def test_the_backends_are_the_promised_ones() -> None:
    assert [backend.name for backend in BACKENDS] == NAMES


@pytest.mark.parametrize("work", EVERY_KIND, ids=lambda work: work.name)
def test_every_backend_runs_every_kind_of_work_and_is_right(rows: dict[str, Row], work: Work) -> None:
    row = rows[work.name]
    absent = {absence.backend: absence.reason for absence in row.absences}
    assert absent == ({"onnxruntime": NO_BFLOAT16} if work is BFLOAT16 else {})
    assert [timing.backend for timing in row.timings] == [name for name in NAMES if name not in absent]
    for timing in row.timings:
        assert timing.is_right, timing
        assert timing.relative_error < (2e-2 if work is BFLOAT16 else 1e-5), timing
        assert timing.seconds > 0
        assert timing.repeats == 2
    assert row.ratio is not None


def test_one_thread_is_timed_by_its_own_clock_for_all_backends_work_in_it(found: Bench) -> None:
    assert {row.clock for row in found.rows} == {"thread"}


def test_of_onnx_runtimes_operators_the_one_with_the_fastest_call_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    first, unsteady, steady = 9.0, [0.1, 0.004, 0.1], [0.01] * 3
    paused: list[float] = []

    def prepared(form: str, costs: list[float]) -> Prepared:
        left = [first, *costs, *costs * 9]

        def call() -> None:
            now[0] += left.pop(0)

        return Prepared(call=call, output=torch.as_tensor, form=form)

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(time, "sleep", paused.append)
    ready = iter([prepared("steady", steady), prepared("unsteady", unsteady)])
    monkeypatch.setattr(onnx_runtime, "graphs_for", lambda _: range(2))
    monkeypatch.setattr(onnx_runtime, "_bound", lambda *_: None)
    monkeypatch.setattr(onnx_runtime, "_prepared", lambda *_: next(ready))
    assert OnnxRuntime().prepare(make_problem(FULL), 1).form == "unsteady"
    assert paused == [PAUSE_SECONDS] * 2  # so that no idle thread of another disturbs


def test_idle_threads_of_onnx_runtime_look_for_work_and_sleep_before_the_next_backend_begins() -> None:
    graph = next(graphs_for(make_problem(FULL)))
    modules = required("onnxruntime", package=""), required("onnx", package="")
    session, _ = onnx_runtime._bound(*modules, graph, 2)
    entry = session.get_session_options().get_session_config_entry
    assert entry("session.intra_op.allow_spinning") == "1"
    assert 0.0 < int(entry("session.intra_op.spin_duration_us")) * 1e-6 < PAUSE_SECONDS


def test_onnx_runtime_is_asked_for_every_operator_that_fits() -> None:
    operators = {
        work.name: [graph.operator for graph in graphs_for(make_problem(work))] for work in IN_FLOAT32
    }
    assert operators == {
        "full": ["Attention", "MultiHeadAttention"],
        "causal": ["Attention", "MultiHeadAttention", "GroupQueryAttention"],
        "gqa": ["Attention", "GroupQueryAttention"],
        "window": ["GroupQueryAttention"],
        "padded": ["Attention", "MultiHeadAttention"],
        "decode": ["Attention", "GroupQueryAttention"],
        "decode-mha": ["Attention", "MultiHeadAttention", "GroupQueryAttention"],
    }


@pytest.mark.parametrize("work", IN_FLOAT32, ids=lambda work: work.name)
def test_each_of_these_operators_is_right(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    # The fastest is taken, so the others would go unseen.
    problem = make_problem(work)
    for graph in list(graphs_for(problem)):
        monkeypatch.setattr("headwise.verbs.bench.backends.onnx_runtime.graphs_for", lambda _, it=graph: [it])
        prepared = OnnxRuntime().prepare(problem, 1)
        for _ in range(2):  # what is kept in place must not wear off
            output = prepared.output(prepared.call())
            assert error_of(output, exact_output(problem), work.dtype).relative < 1e-5, graph.form


def test_torch_gets_its_threads_back_and_the_machine_is_told(found: Bench) -> None:
    assert torch.get_num_threads() == 1
    machine = found.machine
    assert machine.processor
    assert 1 <= machine.usable_cpus <= machine.cpus
    assert machine.load >= 0
    assert {"python", "headwise", "torch", "numpy", "onnxruntime", "jax"} <= set(machine.versions)
    assert found.peaks.fma_flops > 1e9
    assert found.peaks.read_bytes > 1e8


def test_several_threads_go_by_the_wall_and_jax_keeps_the_threads_it_has() -> None:
    uncompiled = [backend for backend in BACKENDS if backend.name != "flex_attention"]
    assert bench_works([FULL], uncompiled, threads=1, repeat=1).rows[0].timing_of("jax") is not None
    (row,) = bench_works([DECODE], uncompiled, threads=2, repeat=1).rows
    assert row.clock == "wall"
    absences = {absence.backend: absence.reason for absence in row.absences}
    assert absences == {"jax": "JAX keeps the 1 thread it had before; run it in a new process"}
    assert torch.get_num_threads() == 1


def test_a_result_is_frozen(found: Bench) -> None:
    for value in (found, found.machine, found.peaks, found.rows[0], found.rows[0].timings[0]):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, dataclasses.fields(value)[0].name, None)
