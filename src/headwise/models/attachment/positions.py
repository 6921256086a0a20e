"""At which place of its own text each query row stands, whatever the padding and the cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from headwise.models.attachment.cache_watch import cache_among, cached_tokens


def positions_of(arguments: Mapping[str, Any]) -> Tensor | None:
    """Return the place of each row in its text, counted from 0 without padding, `[batch or 1, seq_len]`.

    The attention mask says it best, since it also covers the cached tokens; without one, position ids, and
    without those, the length of the cache. None where the input is no text.

    Args:
        arguments: the arguments of the model's forward, by name.

    """
    ids = arguments.get("input_ids")
    tokens = ids if ids is not None else arguments.get("inputs_embeds")
    if not isinstance(tokens, Tensor):
        return None
    seq_len = tokens.shape[1]
    mask, position_ids = arguments.get("attention_mask"), arguments.get("position_ids")
    if isinstance(mask, Tensor) and mask.dim() == 2 and mask.shape[1] >= seq_len:
        return (mask.long().cumsum(-1) - 1).clamp_min(0)[:, -seq_len:]
    if isinstance(position_ids, Tensor) and position_ids.dim() == 2:
        return position_ids
    cached = cached_tokens(cache_among(arguments.values()))
    return torch.arange(cached, cached + seq_len)[None]


def first_tokens(arguments: Mapping[str, Any], cached: int) -> Tensor | None:
    """Return where the texts of a batch have their first token that is no padding, `[batch or 1]`.

    None where a mask was given that does not say it.

    Args:
        arguments: the arguments of the model's forward, by name.
        cached: how many tokens the cache holds.

    """
    name = "decoder_attention_mask" if "decoder_input_ids" in arguments else "attention_mask"
    mask = arguments.get(name)
    if mask is None:
        return torch.zeros(1, dtype=torch.long)
    if isinstance(mask, Tensor) and mask.dim() == 2 and mask.shape[1] > cached:
        return mask.bool().byte().argmax(-1)
    return None
