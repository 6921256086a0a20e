"""Attention by headwise's own CPU kernel: what it does not do, and tensors on their way in and out."""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwise.kernels.geometry import LARGEST_HEAD_DIM
from headwise.ops import dropout, openmp
from headwise.ops.arguments import Call
from headwise.ops.results import AttentionResult, Softmaxed

_ELEMENTS = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
_LOWEST = torch.finfo(torch.float32).min
NUMBERS_KEPT = 3
"""How many numbers a row the kernel leaves for whoever makes its softmax again: `Softmaxed.rows`."""


def why_not(call: Call) -> tuple[str, ...]:
    """Return the reasons, if any, why the kernel cannot compute this call."""
    obstacles = tuple(_obstacles(call))
    if obstacles or torch.compiler.is_dynamo_compiling():  # which cannot ask the processor
        return obstacles
    return _unavailable()


def attend(call: Call) -> Tensor:
    """Return the output of the whole call."""
    output = empty_output(call)
    bias, _ = summed_bias(call)
    _run(prepared_for(call, bias, output))
    return output


def attend_with_logsumexp(call: Call) -> AttentionResult:
    """Return output and logsumexp of the whole call."""
    output, logsumexp = empty_output(call), _empty_rows(call)
    bias, shift = summed_bias(call)
    _run(prepared_for(call, bias, output, logsumexp))
    return AttentionResult(output, logsumexp if shift is None else logsumexp + shift)


class Attended(NamedTuple):
    """What a second visit to a call needs to know of the first: its result, and what it was computed from."""

    result: AttentionResult
    sizes: Any
    operands: Any


def attend_for_visit(call: Call) -> Attended:
    """Return output and logsumexp of the whole call, and keep what its softmax was made with."""
    attended, prepared = _attend_and_keep(call)
    return Attended(AttentionResult(attended.output, attended.logsumexp), *prepared)


def attend_for_gradient(call: Call) -> Softmaxed:
    """Return output and logsumexp of the whole call, and what its softmax was made with."""
    return _attend_and_keep(call)[0]


def _attend_and_keep(call: Call) -> tuple[Softmaxed, Prepared]:
    output, logsumexp, kept = empty_output(call), _empty_rows(call), _empty_rows(call, NUMBERS_KEPT)
    bias, shift = summed_bias(call)
    prepared = prepared_for(call, bias, output, logsumexp)
    first, step = kept.data_ptr(), logsumexp.nbytes  # to unbind them takes as long as a small call
    operands = prepared.operands._replace(
        maxima=first,
        sums=first + step,
        shifts=0 if bias is None else first + 2 * step,
        owners=(*prepared.operands.owners, kept),
    )
    prepared = Prepared(prepared.sizes, operands)
    _run(prepared)
    return Softmaxed(output, logsumexp if shift is None else logsumexp + shift, kept), prepared


def _obstacles(call: Call) -> list[str]:
    query, found = call.query, []
    if not query.is_cpu:
        found.append(f"device {query.device.type}: the kernel runs on cpu")
    if query.dtype is torch.float64:
        found.append("float64: the kernel computes in float32")
    for name, width in (("head_dim", query.shape[3]), ("value_head_dim", call.value.shape[3])):
        if width > LARGEST_HEAD_DIM:
            found.append(f"{name}={width}: the kernel goes up to {LARGEST_HEAD_DIM}")
    if call.sinks is not None and call.sinks.dim() > 1:
        found.append("sinks differ between batch elements: the kernel takes one for each head")
    if call.sinks is not None and _adds_up(call):
        found.append(
            "sinks beside several biases, or one in float64: the kernel takes one in float32 beside them"
        )
    return found


@cache
def _unavailable() -> tuple[str, ...]:
    reason: str | None = _compiled().why_unavailable()
    return () if reason is None else (reason,)


@cache
def _compiled() -> ModuleType:
    """Return the kernel; Numba, which takes a while to load, is loaded when it is first needed."""
    from headwise.kernels import attend, team  # noqa: PLC0415 - as said

    address = openmp.parallel_address()
    if address is not None:
        team.TEAM.join(address)
    return attend


class Prepared(NamedTuple):
    """A problem as the kernel takes it."""

    sizes: Any
    operands: Any


def _run(prepared: Prepared) -> None:
    _compiled().attend(*prepared, num_threads=torch.get_num_threads())


def prepared_for(
    call: Call, bias: Tensor | None, output: Tensor, logsumexp: Tensor | None = None
) -> Prepared:
    """Return the problem of a call whose results go to `output` and `logsumexp`."""
    kernel, rows, gates, sinks = _compiled(), call.visibility.interval_memory, call.head_gates, call.sinks
    query, key, value = readable(call.query), readable(call.key), readable(call.value)
    batch, num_heads, seq_len, head_dim = query.shape
    _, num_kv_heads, kv_len, value_head_dim = value.shape
    mask = _mask(call)
    bias = None if bias is None else readable(bias.expand(_scores_shape(call)))
    sinks = None if sinks is None else readable(sinks).contiguous()
    gates = None if gates is None else readable(gates).contiguous()
    seed, threshold, growth = dropout.terms(call)
    operands = kernel.Operands(
        element=_ELEMENTS[query.dtype],
        query=_strided(query),
        key=_strided(key),
        value=_strided(value),
        output=_strided(output),
        starts=rows.start,
        stops=rows.stop,
        interval_stride=rows.step,
        owners=(query, key, value, output, logsumexp, rows, mask, bias, sinks, gates),
        scale=call.scale,
        softcap=0.0 if call.softcap is None else call.softcap,
        logsumexp=0 if logsumexp is None else logsumexp.data_ptr(),
        mask=None if mask is None else _strided(mask),
        bias=None if bias is None else _strided(bias),
        sinks=0 if sinks is None else sinks.data_ptr(),
        gates=0 if gates is None else gates.data_ptr(),
        gate_stride=0 if gates is None or gates.shape[0] == 1 else num_heads,
        seed=seed,
        threshold=threshold,
        growth=growth,
    )
    sizes = kernel.Sizes(batch, num_heads, num_kv_heads, seq_len, kv_len, head_dim, value_head_dim)
    return Prepared(sizes, operands)


def _strided(tensor: Tensor) -> tuple[int, int, int, int, int]:
    """Return a tensor of rank 4 as the kernel takes it: its address and strides."""
    batch, head, place, column = tensor.stride()
    return tensor.data_ptr(), batch, head, place, column


def readable(tensor: Tensor) -> Tensor:
    """Return a tensor whose memory holds its numbers: with the minus signs that torch puts off applied."""
    return tensor.resolve_neg() if tensor.is_neg() else tensor


def _empty_rows(call: Call, *count: int) -> Tensor:
    """Return one number a row, float32 `[batch, num_heads, seq_len]`, or `count` of them."""
    return call.query.new_empty((*count, *call.query.shape[:3]), dtype=torch.float32)


def empty_output(call: Call) -> Tensor:
    """Return where the output goes: laid out in memory as the query is, if it has its shape.

    A model's query is `[batch, seq_len, num_heads, head_dim]` seen from the side, and it wants its output so.
    The kernel writes rows whose numbers lie side by side.
    """
    if call.value.shape[3] == call.query.shape[3]:
        output = torch.empty_like(call.query)
        if output.stride(3) == 1:
            return output
    return call.query.new_empty((*call.query.shape[:3], call.value.shape[3]))


def _mask(call: Call) -> Tensor | None:
    """Return the boolean tensors as one, `[batch, num_heads, seq_len, kv_len]`, without expanding it."""
    if not call.visibility.boolean:
        return None
    first, *others = call.visibility.boolean
    for other in others:
        first = first & other
    return first.expand(_scores_shape(call))


def summed_bias(call: Call) -> tuple[Tensor | None, Tensor | None]:
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
