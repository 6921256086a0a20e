"""Attention by headwise's own CPU kernel: what it takes, and tensors on their way in and out."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from headwise.kernels.geometry import LARGEST_HEAD_DIM
from headwise.ops.arguments import Call
from headwise.ops.results import AttentionResult

_ELEMENTS = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}


def why_not(call: Call) -> tuple[str, ...]:
    """Return the reasons, if any, why the kernel cannot compute this call."""
    query, value = call.query, call.value
    tensors = (query, call.key, value, call.sinks, call.head_gates, *call.visibility.additive)
    given = [tensor for tensor in tensors if tensor is not None]
    dtypes = {bias.dtype for bias in call.visibility.additive}
    reasons = {
        f"device {query.device.type}: the kernel runs on cpu": query.device.type != "cpu",
        "float64: the kernel computes in float32": query.dtype == torch.float64,
        f"head_dim {query.shape[3]} is above {LARGEST_HEAD_DIM}": query.shape[3] > LARGEST_HEAD_DIM,
        f"value_head_dim {value.shape[3]} is above {LARGEST_HEAD_DIM}": value.shape[3] > LARGEST_HEAD_DIM,
        "dropout: the kernel has none": call.dropout > 0,
        "an input requires a gradient, and the kernel has none": torch.is_grad_enabled()
        and any(tensor.requires_grad for tensor in given),
        "more than one bias, or one in float64: they are added up in float64": len(call.visibility.additive) > 1
        or torch.float64 in dtypes,
        "the tensors are being traced or transformed, and the kernel needs their numbers": not _is_real(given),
    }
    found = [reason for reason, holds in reasons.items() if holds]
    if not found:
        from headwise.kernels.attend import why_unavailable  # noqa: PLC0415 - Numba is loaded when it is needed

        unavailable = why_unavailable()
        if unavailable:
            found.append(unavailable)
    return tuple(found)


def attend(call: Call, *, need_logsumexp: bool) -> AttentionResult:
    """Return the output of the whole call, and its logsumexp, which is empty if it is not needed."""
    from headwise.kernels import attend as kernel  # noqa: PLC0415 - Numba is loaded when it is needed

    sizes = call.sizes
    output = call.query.new_empty((*call.query.shape[:3], call.value.shape[3]))
    logsumexp = torch.empty(call.query.shape[:3] if need_logsumexp else (0, 0, 0), dtype=torch.float32)
    intervals = call.visibility.intervals
    kernel.attend(
        kernel.Arrays(
            query=_numbers(call.query),
            key=_numbers(call.key),
            value=_numbers(call.value),
            starts=np.ascontiguousarray(intervals.start),
            stops=np.ascontiguousarray(intervals.stop),
            mask=_mask(call),
            bias=_bias(call),
            sinks=None if call.sinks is None else call.sinks.detach().contiguous().numpy(),
            gates=None if call.head_gates is None else call.head_gates.detach().contiguous().numpy(),
        ),
        _numbers(output),
        logsumexp.numpy() if need_logsumexp else None,
        element=_ELEMENTS[call.query.dtype],
        scale=call.scale,
        softcap=call.softcap,
        num_threads=torch.get_num_threads(),
    )
    return AttentionResult(output, logsumexp)


def _is_real(tensors: list[Tensor]) -> bool:
    """Return whether all tensors have memory of their own, as those in a trace or a transform have not."""
    return not torch.compiler.is_compiling() and all(
        type(tensor) in (Tensor, torch.nn.Parameter) and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        for tensor in tensors
    )


def _numbers(tensor: Tensor) -> np.ndarray:
    """Return a tensor's memory as an array; 16-bit numbers as int16."""
    found = tensor.detach()
    return (found if found.dtype == torch.float32 else found.view(torch.int16)).numpy()


def _mask(call: Call) -> np.ndarray | None:
    """Return the boolean tensors as one, `[batch, num_heads, seq_len, kv_len]`, without expanding it."""
    if not call.visibility.boolean:
        return None
    first, *others = call.visibility.boolean
    for other in others:
        first = first & other
    return first.view(torch.uint8).expand(_scores_shape(call)).numpy()


def _bias(call: Call) -> np.ndarray | None:
    if not call.visibility.additive:
        return None
    (bias,) = call.visibility.additive
    return bias.detach().to(torch.float32).expand(_scores_shape(call)).numpy()


def _scores_shape(call: Call) -> tuple[int, int, int, int]:
    sizes = call.sizes
    return sizes.batch, sizes.num_heads, sizes.seq_len, sizes.kv_len
