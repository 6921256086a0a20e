"""Attention by the definition: `headwise.reference` in float64 on the CPU, for tensors."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from headwise import masks, reference
from headwise.errors import UnsupportedError
from headwise.ops.arguments import Call
from headwise.ops.results import AttentionResult
from headwise.ops.visibility import as_bias

MaskKind = TypeVar("MaskKind", bound=masks.Mask)


def attend(call: Call, mask: Any, bias: Any) -> AttentionResult:
    """Return output and logsumexp of the whole call.

    Raises:
        UnsupportedError: a gradient or dropout is asked for.

    """
    given = (call.query, call.key, call.value, call.sinks, call.head_gates, *call.visibility.additive)
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in given):
        raise UnsupportedError(
            'impl="reference" has no gradient, and an input requires one; call it under torch.no_grad(), '
            'or use impl="torch"'
        )
    if call.dropout:
        raise UnsupportedError(
            f'impl="reference" has no dropout, and dropout={call.dropout} was given; '
            'pass 0, or use impl="torch"'
        )
    result = reference.attention(
        _numpy(call.query),
        _numpy(call.key),
        _numpy(call.value),
        mask=_numpy_mask(mask),
        bias=None if bias is None else _numpy_part(as_bias(bias)),
        scale=call.scale,
        softcap=call.softcap,
        sinks=None if call.sinks is None else _numpy(call.sinks),
        head_gates=None if call.head_gates is None else _numpy(call.head_gates),
    )
    like = call.query
    return AttentionResult(
        torch.from_numpy(result.output).to(like.device, like.dtype),
        torch.from_numpy(result.logsumexp).to(like.device, call.compute_dtype),
    )


def _numpy(tensor: Tensor) -> np.ndarray[Any, np.dtype[np.float64]]:
    return tensor.detach().to("cpu", torch.float64).numpy()


def _numpy_mask(mask: Any) -> masks.Mask | None:
    """Return `mask` with NumPy arrays for its tensors; NumPy itself reads neither bfloat16 nor devices."""
    if mask is None:
        return None
    parts = tuple(_numpy_part(part) for part in masks.as_mask(mask).parts)
    return parts[0] if len(parts) == 1 else masks.Intersection(parts)


def _numpy_part(part: MaskKind) -> MaskKind | masks.Dense:
    if not isinstance(part, masks.Dense) or not isinstance(part.tensor, Tensor):
        return part
    return masks.Dense(part.tensor.cpu().numpy() if part.is_boolean else _numpy(part.tensor), part.axes)
