"""Attention by headwise's own CPU kernel: what it does not do, and tensors on their way in and out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.kernels.geometry import LARGEST_HEAD_DIM
from headwise.ops import watchers
from headwise.ops.arguments import Call
from headwise.ops.results import AttentionResult

_ELEMENTS = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
_LOWEST = torch.finfo(torch.float32).min


def why_not(call: Call) -> tuple[str, ...]:
    """Return the reasons, if any, why the kernel cannot compute this call."""
    return tuple(_obstacles(call)) or _unavailable()


def attend(call: Call) -> Tensor:
    """Return the output of the whole call."""
    output = _empty_output(call)
    bias, _ = _bias(call)
    _run(call, bias, output, None)
    return output


def attend_with_logsumexp(call: Call) -> AttentionResult:
    """Return output and logsumexp of the whole call."""
    output, logsumexp = _empty_output(call), call.query.new_empty(call.query.shape[:3], dtype=torch.float32)
    bias, shift = _bias(call)
    _run(call, bias, output, logsumexp)
    return AttentionResult(output, logsumexp if shift is None else logsumexp + shift)


def _obstacles(call: Call) -> Iterator[str]:
    query, visibility = call.query, call.visibility
    if not query.is_cpu:
        yield f"device {query.device.type}: the kernel runs on cpu"
    if query.dtype is torch.float64:
        yield "float64: the kernel computes in float32"
    for name, width in (("head_dim", query.shape[3]), ("value_head_dim", call.value.shape[3])):
        if width > LARGEST_HEAD_DIM:
            yield f"{name}={width}: the kernel goes up to {LARGEST_HEAD_DIM}"
    if call.dropout:
        yield f"dropout={call.dropout}: the kernel has none"
    if call.sinks is not None and _adds_up(call):
        yield "sinks beside several biases, or one in float64: the kernel takes one in float32 beside them"
    tensors = [query, call.key, call.value, *visibility.boolean, *visibility.additive]
    tensors += [tensor for tensor in (call.sinks, call.head_gates) if tensor is not None]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        yield "an input requires a gradient, and the kernel has none"
    watcher = watchers.watcher_of(tensors)
    if watcher is not None:
        yield f"{watcher}, which would not see what the kernel does"


@cache
def _unavailable() -> tuple[str, ...]:
    reason: str | None = _compiled().why_unavailable()
    return () if reason is None else (reason,)


@cache
def _compiled() -> ModuleType:
    """Return the kernel; Numba, which takes a while to load, is loaded when it is first needed."""
    from headwise.kernels import attend  # noqa: PLC0415 - as said

    return attend


def _run(call: Call, bias: Tensor | None, output: Tensor, logsumexp: Tensor | None) -> None:
    kernel, intervals = _compiled(), call.visibility.intervals
    kernel.attend(
        kernel.Arrays(
            query=_numbers(call.query),
            key=_numbers(call.key),
            value=_numbers(call.value),
            starts=np.ascontiguousarray(intervals.start),
            stops=np.ascontiguousarray(intervals.stop),
            mask=_mask(call),
            bias=None if bias is None else _numbers(bias.expand(_scores_shape(call))),
            sinks=None if call.sinks is None else _numbers(call.sinks.contiguous()),
            gates=None if call.head_gates is None else _numbers(call.head_gates.contiguous()),
        ),
        _numbers(output),
        None if logsumexp is None else _numbers(logsumexp),
        element=_ELEMENTS[call.query.dtype],
        scale=call.scale,
        softcap=call.softcap,
        num_threads=torch.get_num_threads(),
    )


def _empty_output(call: Call) -> Tensor:
    return call.query.new_empty((*call.query.shape[:3], call.value.shape[3]))


def _numbers(tensor: Tensor) -> NDArray[Any]:
    """Return a tensor's memory as an array; 16-bit numbers as int16."""
    if tensor.dtype is not torch.float32:
        tensor = tensor.resolve_neg().view(torch.int16)
    return tensor.numpy(force=True)  # detached, and with minus signs that torch puts off applied


def _mask(call: Call) -> NDArray[np.uint8] | None:
    """Return the boolean tensors as one, `[batch, num_heads, seq_len, kv_len]`, without expanding it."""
    if not call.visibility.boolean:
        return None
    first, *others = call.visibility.boolean
    for other in others:
        first = first & other
    return first.view(torch.uint8).expand(_scores_shape(call)).numpy()


def _bias(call: Call) -> tuple[Tensor | None, Tensor | None]:
    """Return what the kernel adds to the scores, in float32, and what to add to the logsumexp afterwards."""
    if not call.visibility.additive:
        return None, None
    if not _adds_up(call):
        return call.visibility.additive[0].to(torch.float32), None
    rows = slice(0, call.sizes.seq_len)
    hidden = call.visibility.hidden(rows)
    bias = call.visibility.sum_of_biases(rows, hidden, torch.float32)
    # To the kernel -inf says hidden, which a number beyond float32 is not.
    centred = bias.centred.clamp_min(_LOWEST)
    return centred if hidden is None else centred.masked_fill(hidden, -torch.inf), bias.shift


def _adds_up(call: Call) -> bool:
    """Return whether the biases must be added up in float64 before the kernel, which takes one, gets them."""
    additive = call.visibility.additive
    return len(additive) > 1 or any(bias.dtype is torch.float64 for bias in additive)


def _scores_shape(call: Call) -> tuple[int, int, int, int]:
    sizes = call.sizes
    return sizes.batch, sizes.num_heads, sizes.seq_len, sizes.kv_len
