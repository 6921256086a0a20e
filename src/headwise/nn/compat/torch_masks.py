"""The masks of `torch.nn.MultiheadAttention` as ours: there True means "may not attend", here "may"."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from headwise.errors import ArgumentError
from headwise.masks import Axes, Causal, Dense, Mask, Sizes, broadcast_shape

_AXES: dict[int, Axes] = {2: "qk", 3: "bqk", 4: "bhqk"}


def read_masks(
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    *,
    is_causal: bool,
    sizes: Sizes,
    added_keys: int,
    device: torch.device,
) -> Mask | None:
    """Return the keys that all masks let through, with their biases, or None for every key.

    Args:
        key_padding_mask: `[batch, kv_len]`, boolean (True hides) or float (added to the scores).
        attn_mask: the same kinds, `[seq_len, kv_len]`, `[batch * num_heads, seq_len, kv_len]`,
            `[batch, seq_len, kv_len]` or `[batch, num_heads, seq_len, kv_len]`; sizes of 1 are broadcast.
        is_causal: whether query i sees key i and those before it only.
        sizes: of the call, without the added keys.
        added_keys: how many keys the module puts behind those given; every query sees them.
        device: where a mask that has to be made is made.

    Raises:
        ArgumentError: a mask is neither boolean nor float, or does not fit the sizes.

    """
    _check_tensors(key_padding_mask=key_padding_mask, attn_mask=attn_mask)
    parts: list[Mask] = []
    if key_padding_mask is not None:
        parts.append(_dense("key_padding_mask", _padding(key_padding_mask, sizes), sizes, added_keys))
    if attn_mask is not None:
        parts.append(_dense("attn_mask", _by_head(attn_mask, sizes), sizes, added_keys))
    if is_causal and added_keys:
        # The added keys stand behind all others, so what a row sees is no longer one interval.
        hidden = torch.ones(sizes.seq_len, sizes.kv_len, dtype=torch.bool, device=device).triu(1)
        parts.append(_dense("is_causal", hidden[None, None], sizes, added_keys))
    elif is_causal:
        parts.append(Causal("upper_left"))
    return reduce(and_, parts) if parts else None


def _check_tensors(**masks: Any) -> None:
    for name, mask in masks.items():
        if mask is not None and not isinstance(mask, Tensor):
            raise ArgumentError(
                f"{name} is a {type(mask).__name__}; pass a tensor, boolean (True means may not attend) or "
                "float (added to the scores); for causal order alone is_causal=True"
            )


def _padding(given: Tensor, sizes: Sizes) -> Tensor:
    """Return the padding mask as rank 4 (batch, head, seq, kv)."""
    if tuple(given.shape) != (sizes.batch, sizes.kv_len):
        raise ArgumentError(
            f"key_padding_mask has shape {tuple(given.shape)}; it must be (batch, kv_len), here "
            f"{(sizes.batch, sizes.kv_len)}, or (kv_len,) for inputs without a batch"
        )
    return given[:, None, None]


def _by_head(given: Tensor, sizes: Sizes) -> Tensor:
    """Return the attention mask as rank 4 (batch, head, seq, kv), sizes of 1 left as they are."""
    shape, rows = tuple(given.shape), sizes.batch * sizes.num_heads
    if len(shape) not in (2, 3, 4) or (len(shape) == 3 and shape[0] not in (1, sizes.batch, rows)):
        raise ArgumentError(
            f"attn_mask has shape {shape}; it must be (seq_len, kv_len), (batch, seq_len, kv_len), "
            "(batch x num_heads, seq_len, kv_len) or rank 4, sizes of 1 allowed; here batch is "
            f"{sizes.batch}, num_heads {sizes.num_heads}, seq_len {sizes.seq_len}, kv_len {sizes.kv_len}"
        )
    if len(shape) == 3 and shape[0] == rows:
        given = given.reshape(sizes.batch, sizes.num_heads, *shape[1:])
    axes = _AXES[given.dim()]
    return given.reshape(broadcast_shape("attn_mask", tuple(given.shape), axes, sizes))


def _dense(name: str, given: Tensor, sizes: Sizes, added_keys: int) -> Dense:
    """Return torch's mask `given`, of rank 4, as ours, the added keys visible."""
    if given.dtype != torch.bool and not given.is_floating_point():
        raise ArgumentError(
            f"{name} has dtype {given.dtype}; allowed are boolean (True means may not attend) and float "
            f"(added to the scores); for zeros and ones pass {name}.bool()"
        )
    if added_keys:
        given = functional.pad(given.expand(*given.shape[:3], sizes.kv_len), (0, added_keys))
    return Dense(~given if given.dtype == torch.bool else given, axes="bhqk")
