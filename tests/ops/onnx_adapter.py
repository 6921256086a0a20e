"""ONNX's Attention operator (opsets 23 to 25) in terms of headwise, to run that standard's test cases.

Everything the operator can return comes from the attention under test: scores too, which are the logsumexp of
rows that see one key only, and weights, which are the output where the value is the identity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from onnx import TensorProto
from torch import Tensor
from torch.nn import functional

from headwise.masks import Align, Causal, Dense, Intersection, Lengths, Mask, Window
from headwise.ops import AttentionResult

Attend = Callable[..., AttentionResult]


@dataclass(frozen=True)
class _Problem:
    """The node's inputs as headwise wants them; `parts` are masks, the first ones about positions."""

    query: Tensor
    key: Tensor
    value: Tensor
    parts: tuple[Mask, ...]
    scale: float | None
    softcap: float | None


def run_node(
    inputs: dict[str, Tensor],
    attributes: dict[str, Any],
    wanted: list[str],
    *,
    attend: Attend,
    widest: torch.dtype = torch.float64,
) -> dict[str, Tensor]:
    """Return the outputs `wanted`, by their names in the standard, of one Attention node.

    Args:
        inputs: the node's inputs by their names in the standard.
        attributes: the node's attributes.
        wanted: `Y`, `present_key`, `present_value`, `qk_matmul_output`.
        attend: called as `headwise.ops.attention_with_logsumexp` is.
        widest: the widest dtype that `attend` takes, for a `softmax_precision` beyond float32.

    """
    unknown = set(inputs) - {
        "Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen",
    }  # fmt: skip
    assert not unknown, f"inputs the adapter does not know: {sorted(unknown)}"
    problem = _problem(inputs, attributes)
    made = problem if widest != torch.float64 else _widened(problem, attributes.get("softmax_precision"))
    outputs = {"present_key": problem.key, "present_value": problem.value}
    outputs["Y"] = _attend(made, attend, value=made.value, parts=made.parts).output
    if inputs["Q"].dim() == 3:
        outputs["Y"] = outputs["Y"].transpose(1, 2).flatten(2)
    if "qk_matmul_output" in wanted:
        outputs["qk_matmul_output"] = _between(made, attributes.get("qk_matmul_output_mode", 0), attend)
    return {name: outputs[name].to(inputs["Q"].dtype) for name in wanted}


def _problem(inputs: dict[str, Tensor], attributes: dict[str, Any]) -> _Problem:
    heads = {"Q": "q_num_heads", "K": "kv_num_heads", "V": "kv_num_heads"}
    query, key, value = (_heads_apart(inputs[name], attributes.get(heads[name])) for name in "QKV")
    past_len = inputs["past_key"].shape[2] if "past_key" in inputs else 0
    if past_len:
        key = torch.cat([inputs["past_key"], key], dim=2)
        value = torch.cat([inputs["past_value"], value], dim=2)
    parts: list[Mask] = []
    offsets = torch.tensor([past_len])
    if "nonpad_kv_seqlen" in inputs:
        offsets = inputs["nonpad_kv_seqlen"] - query.shape[2]
        parts.append(Lengths(inputs["nonpad_kv_seqlen"].tolist()))
    if attributes.get("is_causal", 0):
        parts.append(_placed(None, 0, offsets, query.shape[2], key.shape[2]))
    left, right = (_neighbours(attributes.get(f"{side}_window_size", -1)) for side in ("left", "right"))
    if left is not None or right is not None:
        parts.append(_placed(left, right, offsets, query.shape[2], key.shape[2]))
    if "attn_mask" in inputs:
        parts.append(_dense(inputs["attn_mask"], key.shape[2]))
    return _Problem(
        query, key, value, tuple(parts), attributes.get("scale"), attributes.get("softcap") or None
    )


def _heads_apart(tensor: Tensor, num_heads: int | None) -> Tensor:
    """Return `[batch, heads, length, width]` of that or of `[batch, length, heads * width]`."""
    return tensor if tensor.dim() == 4 else tensor.unflatten(2, (num_heads, -1)).transpose(1, 2)


def _neighbours(size: int) -> int | None:
    return None if size < 0 else size


def _placed(left: int | None, right: int | None, offsets: Tensor, seq_len: int, kv_len: int) -> Mask:
    """Return the window around each query, where query i of batch element b stands at key `offsets[b] + i`.

    A mask object where it has this placement, else the tensor.
    """
    places: tuple[tuple[Align, int], ...] = (("upper_left", 0), ("lower_right", kv_len - seq_len))
    for align, offset in places:
        if (offsets == offset).all():
            return Causal(align) if (left, right) == (None, 0) else Window(left, right, align)
    distance = torch.arange(kv_len) - (offsets[:, None] + torch.arange(seq_len))[..., None]
    seen = torch.ones_like(distance, dtype=torch.bool)
    if left is not None:
        seen &= distance >= -left
    if right is not None:
        seen &= distance <= right
    return Dense(seen, axes="bqk")


def _dense(mask: Tensor, kv_len: int) -> Dense:
    """Return a mask of any rank, its axes the last ones; keys it does not reach to are hidden."""
    hidden = False if mask.dtype == torch.bool else -torch.inf
    if 1 < mask.shape[-1] < kv_len:
        mask = functional.pad(mask, (0, kv_len - mask.shape[-1]), value=hidden)
    return Dense(mask[(None,) * (4 - mask.dim())])


def _widened(problem: _Problem, precision: int | None) -> _Problem:
    """Return the problem in float64 if its softmax asks for that; up to float32 headwise goes by itself."""
    if precision != TensorProto.DOUBLE:
        return problem
    query, key, value = (tensor.double() for tensor in (problem.query, problem.key, problem.value))
    return _Problem(query, key, value, problem.parts, problem.scale, problem.softcap)


def _attend(
    problem: _Problem, attend: Attend, *, value: Tensor, parts: tuple[Mask, ...], softcap: bool = True
) -> AttentionResult:
    options = {
        "mask": Intersection(parts) if parts else None,
        "scale": problem.scale,
        "softcap": problem.softcap if softcap else None,
    }
    given = {name: option for name, option in options.items() if option is not None}
    return attend(problem.query, problem.key, value, **given)


def _between(problem: _Problem, mode: int, attend: Attend) -> Tensor:
    """Return `qk_matmul_output`: 0 scores, 1 soft-capped, 2 with everything that is added, 3 weights."""
    kv_len = problem.key.shape[2]
    if mode == 3:
        identity = torch.eye(kv_len, dtype=problem.key.dtype).expand(*problem.key.shape[:3], kv_len)
        return _attend(problem, attend, value=identity, parts=problem.parts).output
    parts = problem.parts if mode == 2 else ()
    only = [Dense((torch.arange(kv_len) == key)[None]) for key in range(kv_len)]
    scores = [
        _attend(problem, attend, value=problem.value, parts=(key, *parts), softcap=mode > 0).logsumexp
        for key in only
    ]
    return torch.stack(scores, dim=-1)
