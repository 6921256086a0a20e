"""Attention with one fault each, all of which have shipped somewhere; the suite must catch every one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headwise.masks import Causal, Intersection, Mask, Window, as_mask
from headwise.ops import AttentionResult

from .naive import naive_attention

Attend = Callable[..., AttentionResult]


def sound(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> AttentionResult:
    """No fault: what every mutant is made from. Poison is taken out, so that it can trip nobody by itself."""
    return naive_attention(query, key.nan_to_num(), value.nan_to_num(), **options)


def kv_heads_tiled(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> AttentionResult:
    tiles = (1, query.shape[1] // key.shape[1], 1, 1)
    return sound(query, key.repeat(tiles), value.repeat(tiles), **options)


def upper_left_for_lower_right(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> AttentionResult:
    def moved(part: Mask) -> Mask:
        return Causal("upper_left") if isinstance(part, Causal) else part

    return sound(query, key, value, **_with_parts(options, moved))


def window_off_by_one(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> AttentionResult:
    def shrunk(part: Mask) -> Mask:
        return replace(part, left=part.left - 1) if isinstance(part, Window) and part.left else part

    return sound(query, key, value, **_with_parts(options, shrunk))


def base_two_logsumexp(*tensors: Tensor, **options: Any) -> AttentionResult:
    output, logsumexp = sound(*tensors, **options)
    return AttentionResult(output, logsumexp / math.log(2))


def missing_scale(*tensors: Tensor, **options: Any) -> AttentionResult:
    return sound(*tensors, **{**options, "scale": 1.0})


def scale_from_the_model_width(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> AttentionResult:
    scale = (query.shape[1] * query.shape[3]) ** -0.5
    return sound(query, key, value, **{"scale": scale, **options})


def swapped_heads(*tensors: Tensor, **options: Any) -> AttentionResult:
    output, logsumexp = sound(*tensors, **options)
    order = [1, 0, *range(2, output.shape[1])]
    return AttentionResult(output[:, order], logsumexp[:, order])


def dropped_key(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> AttentionResult:
    """The last key of longer inputs is never looked at."""
    seen = torch.ones(1, 1, 1, key.shape[2], dtype=torch.bool)
    seen[..., -1] = False
    mask = options.get("mask")
    return sound(query, key, value, **{**options, "mask": seen if mask is None else seen & as_mask(mask)})


def keys_read_past_the_end(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> AttentionResult:
    """The weighted sum runs over one place more; its weight is 0, but what lies there in memory is NaN."""
    output, logsumexp = sound(query, key, value, **options)
    size = (*value.shape[:2], 1, value.shape[3])
    offset = value.storage_offset() + value.shape[2] * value.stride(2)
    behind = value.as_strided(size, value.stride(), offset).repeat_interleave(
        query.shape[1] // key.shape[1], 1
    )
    return AttentionResult(output + 0.0 * behind, logsumexp)


def hidden_values_times_zero(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> AttentionResult:
    """What is hidden gets a weight of 0, and is multiplied by it."""
    output, logsumexp = sound(query, key, value, **options)
    group_size = query.shape[1] // key.shape[1]
    return AttentionResult(
        output + (0.0 * value).sum(2, keepdim=True).repeat_interleave(group_size, 1), logsumexp
    )


def mask_upside_down(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> AttentionResult:
    mask = options.get("mask")
    if isinstance(mask, Tensor) and mask.dtype == torch.bool:
        mask = ~mask
    return sound(query, key, value, **{**options, "mask": mask})


def mean_where_nothing_is_seen(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> AttentionResult:
    output, logsumexp = sound(query, key, value, **options)
    mean = value.nan_to_num().mean(2, keepdim=True).repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    return AttentionResult(torch.where(logsumexp[..., None] == -torch.inf, mean, output), logsumexp)


def softcap_after_bias(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> AttentionResult:
    softcap, bias = options.get("softcap"), options.get("bias")
    if softcap is None or bias is None:
        return sound(query, key, value, **options)
    scale = query.shape[3] ** -0.5 if options.get("scale") is None else options["scale"]
    scores = scale * query @ key.nan_to_num().repeat_interleave(query.shape[1] // key.shape[1], dim=1).mT
    capped = softcap * torch.tanh((scores + bias) / softcap)
    options = {**options, "softcap": None, "bias": capped - scores}
    return sound(query, key, value, **options)


def sinks_forgotten(*tensors: Tensor, **options: Any) -> AttentionResult:
    return sound(*tensors, **{**options, "sinks": None})


def mask_of_the_first_batch_for_all(
    query: Tensor, key: Tensor, value: Tensor, **options: Any
) -> AttentionResult:
    mask = options.get("mask")
    if isinstance(mask, Tensor) and mask.dim() == 4:
        mask = mask[:1]
    return sound(query, key, value, **{**options, "mask": mask})


MUTANTS: tuple[Attend, ...] = (
    kv_heads_tiled,
    upper_left_for_lower_right,
    window_off_by_one,
    base_two_logsumexp,
    missing_scale,
    scale_from_the_model_width,
    swapped_heads,
    dropped_key,
    keys_read_past_the_end,
    hidden_values_times_zero,
    mask_upside_down,
    mean_where_nothing_is_seen,
    softcap_after_bias,
    sinks_forgotten,
    mask_of_the_first_batch_for_all,
)


def _with_parts(options: dict[str, Any], change: Callable[[Mask], Mask]) -> dict[str, Any]:
    mask = options.get("mask")
    if not isinstance(mask, Mask):
        return options
    return {**options, "mask": Intersection(tuple(change(part) for part in mask.parts))}
