"""ONNX Runtime: of its operators that fit a work, the fastest here."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import numpy as np

from headwise.verbs.bench.backends.backend import (
    PAUSE_SECONDS,
    Backend,
    Prepared,
)
from headwise.verbs.bench.backends.onnx_graphs import MICROSOFT, Graph, graphs_for
from headwise.verbs.bench.problem import Problem
from headwise.verbs.libraries import CannotRunError, required

OPSET = 23  # the first with Attention
FORMAT = 10  # of the model file
ERRORS_ONLY = 3
# Its idle threads look for work that long before they sleep. Unless told they would do so for ever, and take
# time from whoever comes next; if they slept at once, two threads would be no faster than one where a call
# takes a millisecond. OpenMP's threads, which torch and headwise use, do it for 7 ms.
SPIN_MICROSECONDS = 5000
# One call of each operator takes now one and now another for the fastest.
TRIED_CALLS, TRIED_SECONDS = 7, 0.2


class OnnxRuntime(Backend):
    """`MultiHeadAttention`, `GroupQueryAttention` or `Attention`, inputs bound and laid out beforehand."""

    name: ClassVar[str] = "onnxruntime"
    label: ClassVar[str] = "ORT"

    def prepare(self, problem: Problem, threads: int) -> Prepared:
        """Return the fastest operator's call.

        Raises:
            CannotRunError: ONNX or ONNX Runtime is missing, or has no operator for the work.

        """
        runtime = required("onnxruntime", package="ONNX Runtime")
        onnx = required("onnx", package="ONNX")
        if problem.work.dtype != "float32":
            raise CannotRunError(f"its attention operators take no {problem.work.dtype} on a CPU")
        ready = [_prepared(_bound(runtime, onnx, graph, threads), graph) for graph in graphs_for(problem)]
        if not ready:
            raise CannotRunError("it has no operator for this mask")
        return min(ready, key=_seconds)


def _bound(runtime: Any, onnx: Any, graph: Graph, threads: int) -> tuple[Any, Any]:
    """Return a session that has the graph, and a binding that holds its tensors."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")
    options.add_session_config_entry("session.intra_op.spin_duration_us", str(SPIN_MICROSECONDS))
    options.log_severity_level = ERRORS_ONLY
    model = _model(onnx, graph).SerializeToString()
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    held = {
        name: runtime.OrtValue.ortvalue_from_numpy(array)
        for name, array in graph.inputs.items()
        if array is not None
    }
    for name, tensor in held.items():
        binding.bind_ortvalue_input(name, tensor)
    for name in graph.outputs:
        if name in graph.in_place:
            binding.bind_ortvalue_output(name, held[graph.in_place[name]])
        else:
            binding.bind_output(name)
    return session, binding


def _model(onnx: Any, graph: Graph) -> Any:
    make, types = onnx.helper, onnx.TensorProto
    given = {name: array for name, array in graph.inputs.items() if array is not None}
    names = [name if name in given else "" for name in graph.inputs]
    node = make.make_node(graph.operator, names, graph.outputs, domain=graph.domain, **graph.attributes)
    inputs = [
        make.make_tensor_value_info(name, make.np_dtype_to_tensor_dtype(array.dtype), None)
        for name, array in given.items()
    ]
    outputs = [make.make_tensor_value_info(name, types.FLOAT, None) for name in graph.outputs]
    opsets = [make.make_opsetid("", OPSET), make.make_opsetid(MICROSOFT, 1)]
    whole = make.make_graph([node], "attention", inputs, outputs)
    return make.make_model(whole, opset_imports=opsets, ir_version=FORMAT)


def _prepared(bound: tuple[Any, Any], graph: Graph) -> Prepared:
    session, binding = bound

    def call() -> Any:
        session.run_with_iobinding(binding)
        return binding

    return Prepared(
        call=call,
        output=lambda found: graph.to_output(np.array(found.get_outputs()[0].numpy())),
        form=graph.form,
    )


def _seconds(prepared: Prepared) -> float:
    """Return how long the fastest of some calls takes, the first left out.

    It begins when the threads of whoever ran before, another operator's among them, have gone to sleep.
    """
    time.sleep(PAUSE_SECONDS)
    prepared.call()
    taken: list[float] = []
    while len(taken) < TRIED_CALLS and sum(taken) < TRIED_SECONDS:
        start = time.perf_counter()
        prepared.call()
        taken.append(time.perf_counter() - start)
    return min(taken)
