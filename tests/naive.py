"""Attention as one would first write it in torch: KV heads repeated, all scores at once, all in one dtype.

It is the baseline of the tolerance rule, the thing that mutants mutate, and, in float64, the autograd oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from headwise import masks, reference
from headwise.ops import AttentionResult


def naive_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    head_gates: Tensor | None = None,
) -> AttentionResult:
    """Return attention; the arguments are those of `headwise.ops.attention_with_logsumexp`."""
    group_size = query.shape[1] // key.shape[1]
    key, value = (tensor.repeat_interleave(group_size, dim=1) for tensor in (key, value))
    visible, added = visible_and_bias(query, key, mask, bias)
    scores = (query @ key.mT) * (query.shape[3] ** -0.5 if scale is None else scale)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    empty = ~visible.any(-1, keepdim=True)
    scores = (scores + added).masked_fill(~visible, -torch.inf).masked_fill(empty, 0.0)
    if sinks is not None:
        column = sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, column], dim=-1)
    weights = torch.softmax(scores, -1)[..., : key.shape[2]].masked_fill(empty, 0.0)
    output = weights @ value
    if head_gates is not None:
        output = output * head_gates.to(output.dtype)[..., None, None]
    return AttentionResult(output, torch.logsumexp(scores, -1).masked_fill(empty[..., 0], -torch.inf))


def visible_and_bias(query: Tensor, key: Tensor, mask: Any, bias: Any) -> tuple[Tensor, Tensor]:
    """Return which keys each row sees and, in the dtype of query, what is added to its scores."""
    sizes = masks.Sizes(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    visible, added = reference.visible_and_bias(mask, bias, sizes)
    return torch.from_numpy(visible), torch.from_numpy(added).to(query.dtype)


def gradients(attend: Callable[..., Tensor], tensors: list[Tensor], upstream: Tensor) -> list[Tensor]:
    """Return the gradients of `(attend(*tensors) * upstream).sum()`."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    output = attend(*leaves)
    return list(torch.autograd.grad(output, leaves, upstream.to(output.dtype)))
