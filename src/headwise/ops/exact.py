"""Attention by the definition: `headwise.reference` in float64 on the CPU, for tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from headwise import masks, reference
from headwise.errors import UnsupportedError
from headwise.ops.arguments import Call
from headwise.ops.results import AttentionResult


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
            f'impl="reference" has no dropout, and dropout={call.dropout} was given; pass 0, or use impl="torch"'
        )
    result = reference.attention(
        _numpy(call.query),
        _numpy(call.key),
        _numpy(call.value),
        mask=_numpy_mask(mask),
        bias=None if bias is None else _numpy_mask(bias),
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
    """Return `mask` with NumPy arrays in place of tensors, which NumPy reads only in part (bfloat16, devices)."""
    if mask is None:
        return None
    mask = masks.as_mask(mask)
    if isinstance(mask, masks.Intersection):
        return masks.Intersection(
            tuple(part for each in mask.parts if (part := _numpy_mask(each)) is not None)
        )
    if isinstance(mask, masks.Dense) and isinstance(mask.tensor, Tensor):
        tensor = mask.tensor
        return masks.Dense(tensor.cpu().numpy() if mask.is_boolean else _numpy(tensor), mask.axes)
    return mask
