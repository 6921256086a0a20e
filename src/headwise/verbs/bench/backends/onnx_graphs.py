"""The operators of ONNX Runtime that can compute a work, each as the parts of a one-node graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.verbs.bench.problem import Problem

Array = NDArray[Any]
Inputs = dict[str, Array | None]
MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class Graph:
    """One operator with its attributes and its inputs.

    - inputs: the node's inputs in order; None for one that is left out
    - in_place: outputs that are written into an input, by their names
    - to_output: turns the first output into `[batch, num_heads, seq_len, head_dim]`
    """

    operator: str
    domain: str
    attributes: dict[str, int]
    inputs: Inputs
    to_output: Callable[[Array], Tensor]
    outputs: tuple[str, ...] = ("output",)
    in_place: dict[str, str] = field(default_factory=dict)
    remark: str = ""

    @property
    def form(self) -> str:
        """The operator in words."""
        return f"{self.domain} {self.operator}".strip() + self.remark


def graphs_for(problem: Problem) -> Iterator[Graph]:
    """Yield the operator in every form that fits the work."""
    work = problem.work
    is_grouped = work.num_kv_heads != work.num_heads
    if work.window is None:
        yield attention(problem)
    if not is_grouped and work.window is None:
        yield multi_head_attention(problem)
    if work.causal and work.seq_len == work.kv_len:
        yield grouped_prompt(problem)
    if work.is_decode and work.lengths is None:
        yield grouped_decode(problem)


def attention(problem: Problem) -> Graph:
    """Return ONNX's own operator, its tensors in headwise's layout."""
    inputs: Inputs = {name: getattr(problem, name).numpy() for name in ("query", "key", "value")}
    if problem.work.lengths is not None:
        batch, seq_len, kv_len = problem.work.batch, problem.work.seq_len, problem.work.kv_len
        visible = problem.visible()[:, None].expand(batch, 1, seq_len, kv_len)
        inputs["mask"] = visible.contiguous().numpy()
    attributes = {"is_causal": int(problem.work.causal)}
    return Graph("Attention", "", attributes, inputs, torch.from_numpy)


def multi_head_attention(problem: Problem) -> Graph:
    """Return ONNX Runtime's operator for as many KV heads as query heads."""
    inputs: Inputs = {name: _heads_joined(getattr(problem, name)) for name in ("query", "key", "value")}
    work = problem.work
    if work.lengths is not None:
        inputs |= {"bias": None, "key_lengths": np.asarray(work.lengths, dtype=np.int32)}
    attributes = {"num_heads": work.num_heads, "unidirectional": int(work.causal)}
    return Graph("MultiHeadAttention", MICROSOFT, attributes, inputs, _split(problem))


def grouped_prompt(problem: Problem) -> Graph:
    """Return ONNX Runtime's operator with a cache, reading a whole prompt at once."""
    inputs = {name: _heads_joined(getattr(problem, name)) for name in ("query", "key", "value")}
    return _grouped(problem, {**inputs, "past_key": None, "past_value": None})


def grouped_decode(problem: Problem) -> Graph:
    """Return ONNX Runtime's operator with a cache that it keeps in place, reading one new token."""
    newest = {name: _heads_joined(getattr(problem, name)[:, :, -1:]) for name in ("query", "key", "value")}
    # The newest token's key and value are written where they already are.
    past = {f"past_{name}": getattr(problem, name).numpy() for name in ("key", "value")}
    in_place = {"present_key": "past_key", "present_value": "past_value"}
    return _grouped(problem, {**newest, **past}, in_place=in_place, remark=", cache in place")


def _grouped(
    problem: Problem,
    inputs: Inputs,
    *,
    in_place: dict[str, str] | None = None,
    remark: str = "",
) -> Graph:
    work = problem.work
    totals = {
        "last_positions": np.full(work.batch, work.kv_len - 1, dtype=np.int32),
        "total_length": np.array(work.kv_len, dtype=np.int32),
    }
    return Graph(
        operator="GroupQueryAttention",
        domain=MICROSOFT,
        attributes={
            "num_heads": work.num_heads,
            "kv_num_heads": work.num_kv_heads,
            "local_window_size": -1 if work.window is None else work.window,
        },
        inputs={**inputs, **totals},
        to_output=_split(problem),
        outputs=("output", "present_key", "present_value"),
        in_place=in_place or {},
        remark=remark,
    )


def _heads_joined(tensor: Tensor) -> Array:
    """Return `[batch, heads, length, width]` as `[batch, length, heads x width]`."""
    return tensor.transpose(1, 2).flatten(2).contiguous().numpy()


def _split(problem: Problem) -> Callable[[Array], Tensor]:
    heads = problem.work.num_heads
    return lambda found: torch.from_numpy(found).unflatten(2, (heads, -1)).transpose(1, 2)
