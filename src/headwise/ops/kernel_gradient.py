"""The gradients of a call by headwise's own CPU kernel: tensors on their way in and out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwise.ops import kernel, ordered_sums
from headwise.ops.arguments import Call
from headwise.ops.results import Gradients, Softmaxed, Wanted

_Placed = tuple[int, tuple[int, ...]]
"""Where a tensor lies: its address and its strides."""

_NOWHERE: _Placed = (0, (0, 0, 0, 0))


class _Upstream(NamedTuple):
    """The gradients of what the call returned, as the kernel reads them."""

    output: Tensor
    logsumexp: Tensor | None


def gradients(
    call: Call,
    attended: Softmaxed,
    grad_output: Tensor,
    grad_logsumexp: Tensor | None,
    *,
    wanted: Wanted,
) -> Gradients:
    """Return the gradients that are wanted of a call that the kernel computed.

    - call: what was attended to, without gates
    - grad_output `[batch, num_heads, seq_len, value_head_dim]`, of the call's dtype
    - grad_logsumexp `[batch, num_heads, seq_len]`, or None

    All of them with any strides: maps expand them, and hooks of autograd bring back copies.
    """
    output, logsumexp, rows = attended
    attended = Softmaxed(_read_in_lines(output), logsumexp, rows.contiguous())
    bias, _ = kernel.summed_bias(call)
    of_rows = wanted.bias and bias is not None and bias.shape[3] == 1
    has_sinks = call.sinks is not None
    found = Gradients(
        query=_empty_like(call.query) if wanted.query else None,
        key=_empty_like(call.key) if wanted.key else None,
        value=_empty_like(call.value) if wanted.value else None,
        bias=bias.new_zeros(bias.shape) if wanted.bias and bias is not None and not of_rows else None,
        sinks=torch.empty_like(attended.maxima) if has_sinks and (wanted.sinks or of_rows) else None,
    )
    upstream = _Upstream(
        _read_in_lines(grad_output),
        None if grad_logsumexp is None else kernel.readable(grad_logsumexp.to(torch.float32)).contiguous(),
    )
    _run(call, attended, found, upstream, bias)
    grad_bias = found.bias
    if bias is not None and of_rows:
        grad_bias = _of_row_bias(attended, found.sinks, upstream, bias.shape)
    grad_sinks = ordered_sums.summed(found.sinks, 2) if wanted.sinks and found.sinks is not None else None
    return found._replace(bias=grad_bias, sinks=grad_sinks)


def _run(
    call: Call,
    attended: Softmaxed,
    found: Gradients,
    upstream: _Upstream,
    bias: Tensor | None,
) -> None:
    """Let the kernel fill what is there to be filled."""
    compiled = _compiled()
    sizes, operands = kernel.prepared_for(call, bias, attended.output)
    rests = torch.zeros_like(found.bias) if found.bias is not None and _is_for_all_rows(found.bias) else None
    turns = call.query.new_zeros(compiled.turns_of(sizes), dtype=torch.int64)
    grads: Any = compiled.Gradients(
        *_placed(attended.output),
        *_placed(upstream.output),
        _address(upstream.logsumexp),
        *_placed(found.query),
        *_placed(found.key),
        *_placed(found.value),
        *_placed_by_number(found.bias),
        _address(rests),
        _address(found.sinks),
        turns.data_ptr(),
        shares_bias=found.bias is not None and found.bias.shape[:2] != call.query.shape[:2],
        has_upstream_of_logsumexp=upstream.logsumexp is not None,
        has_query=found.query is not None,
        has_key=found.key is not None,
        has_value=found.value is not None,
        has_bias=found.bias is not None,
        has_bias_rests=rests is not None,
        has_sinks=found.sinks is not None,
    )
    operands = operands._replace(
        maxima=attended.maxima.data_ptr(),
        sums=attended.sums.data_ptr(),
        shifts=0 if bias is None else attended.shifts.data_ptr(),
        owners=(*operands.owners, attended, found, upstream, turns, rests),
    )
    compiled.differentiate(sizes, operands, grads, num_threads=torch.get_num_threads())
    if found.bias is not None and rests is not None:
        found.bias.add_(rests.where(found.bias.isfinite(), 0.0))


@cache
def _compiled() -> ModuleType:
    """Return the kernel's backward pass; Numba is loaded when it is first needed."""
    from headwise.kernels import differentiate  # noqa: PLC0415 - as said

    return differentiate


def _of_row_bias(
    attended: Softmaxed, terms: Tensor | None, upstream: _Upstream, shape: Sequence[int]
) -> Tensor:
    """Return the gradient of a bias that is one number for all keys of a row.

    Such a number moves nothing but logsumexp, and the share of a sink, which loses what the keys gain: no sum
    over the keys is needed. `terms` is what each row adds to the gradient of its sink. What cancels in that
    sum does not where it is no number.
    """
    found = torch.zeros_like(attended.maxima)
    if upstream.logsumexp is not None:
        found += upstream.logsumexp
    if terms is not None:
        found -= terms
    cancels = attended.output.isfinite().all(-1) & upstream.output.isfinite().all(-1)
    found = found.masked_fill(~cancels | attended.sums.isnan(), torch.nan)
    found = found.masked_fill(attended.sums == 0, 0.0)  # a row that sees no key
    axes = tuple(axis for axis in range(3) if shape[axis] == 1)
    return ordered_sums.summed(found, *axes).reshape(tuple(shape))


def _is_for_all_rows(bias: Tensor) -> bool:
    """Return whether so many numbers add up in each of the gradient's that rounding would show."""
    return bias.shape[2] == 1


def _read_in_lines(tensor: Tensor) -> Tensor:
    """Return the same numbers, neighbours in the last axis side by side."""
    return kernel.readable(tensor if tensor.stride(3) == 1 else tensor.contiguous())


def _empty_like(tensor: Tensor) -> Tensor:
    """Return memory laid out as the tensor is, or in order if its lines are not in one piece."""
    found = torch.empty_like(tensor)
    return found if found.stride(3) == 1 else tensor.new_empty(tensor.shape)


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _placed(tensor: Tensor | None) -> _Placed:
    """Return address and strides in bytes."""
    if tensor is None:
        return _NOWHERE
    return tensor.data_ptr(), tuple(stride * tensor.element_size() for stride in tensor.stride())


def _placed_by_number(tensor: Tensor | None) -> _Placed:
    """Return address and strides in numbers, 0 where all share one."""
    if tensor is None:
        return _NOWHERE
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return tensor.data_ptr(), tuple(0 if size == 1 else stride for size, stride in sizes)
