"""What a multi-head attention layer may be made and called with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from headwise.cache import RollingKVCache
from headwise.errors import ArgumentError
from headwise.nn.given import Weight, check_kinds, check_weights_take
from headwise.nn.seen_keys import Cache
from headwise.ops import arguments
from headwise.rope import Rope


def checked_rope(rope: Any, head_dim: int) -> Rope | None:
    """Return `rope`, or refuse what is none or cannot turn heads of `head_dim`.

    Raises:
        ArgumentError: it is no Rope, or the elements of a head do not make up pairs.

    """
    if rope is None:
        return None
    if not isinstance(rope, Rope):
        raise ArgumentError(
            f"rope={rope!r} is a {type(rope).__name__}; pass a Rope, such as Rope(base=10000.0)"
        )
    rope.rotary_dim_of(head_dim)
    return rope


def checked_softcap(softcap: float | None) -> float | None:
    """Return `softcap`, refused here as the operator would refuse it, in its words.

    Raises:
        ArgumentError: it is not a finite number above 0.

    """
    nothing = torch.empty(1, 1, 0, 1)
    arguments.check(nothing, nothing, nothing, softcap=softcap)
    return softcap


def check_inputs(
    query: Tensor, key: Tensor, value: Tensor, *, widths: tuple[int, int, int], weights: Sequence[Weight]
) -> None:
    """Refuse inputs that are not `[batch, length, width]`, each of its own width and as its weight is.

    Raises:
        ArgumentError: one is not.

    """
    named = {"query": query, "key": key, "value": value}
    check_kinds(named)
    for (name, given), width in zip(named.items(), widths, strict=True):
        if given.is_nested:
            raise ArgumentError(
                f"{name} is nested; pass padded tensors with mask=Lengths(lengths), or all texts one after "
                "the other as one row with mask=Packed(lengths); compat.TorchMultiheadAttention takes nested "
                "tensors"
            )
        if given.dim() != 3 or given.shape[2] != width:
            raise ArgumentError(
                f"{name} has shape {tuple(given.shape)}; it must be [batch, length, {width}]; "
                "batch comes first, and key_dim and value_dim set the widths of key and value"
            )
    check_weights_take(named, weights)


def check_combination(
    key: Tensor | None,
    value: Tensor | None,
    *,
    cache: Any,
    lengths: Any,
    rope: Rope | None,
    window: int | None,
) -> None:
    """Refuse what cannot be asked of one call together.

    Raises:
        ArgumentError: value without key, lengths without cache, key with what needs query and key to be the
            same tokens, or a cache that is none or forgets keys which a layer of that window sees.

    """
    if key is None and value is not None:
        raise ArgumentError("value is given without key; pass both, or neither for self-attention")
    if key is not None and (cache is not None or rope is not None):
        needing = "rope" if cache is None else "a cache"
        raise ArgumentError(
            f"key is given with {needing}, which is for self-attention: queries and keys are the same tokens "
            "there; leave key out"
        )
    if cache is None:
        if lengths is not None:
            raise ArgumentError(
                "lengths is given without cache; it says which new tokens a cache keeps: to hide padding "
                "pass mask=Lengths(lengths)"
            )
    elif not isinstance(cache, Cache):
        raise ArgumentError(
            f"cache is a {type(cache).__name__}; it must be a headwise KVCache or RollingKVCache, one a layer"
        )
    elif isinstance(cache, RollingKVCache) and window not in (None, cache.window):
        raise ArgumentError(
            f"the cache has window={cache.window} and the layer window={window}; a rolling cache decides "
            f"what is seen, so they must be equal: use RollingKVCache(window={window}), or a KVCache"
        )
