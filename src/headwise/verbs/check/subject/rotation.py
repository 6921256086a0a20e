"""Cosines and sines of rotary positions, for attention that is handed them."""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.rope import Rope


def rotation(
    rope: Rope | None, positions: Tensor, *, head_dim: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return cosines and sines, `[batch, seq_len, head_dim]`, as transformers hands them to its layers.

    Args:
        rope: whose pairs are halves; None for positions that turn nothing, cosines 1 and sines 0.
        positions: of the tokens, `[batch, seq_len]`.
        head_dim: width of a head; with rope, only its rotary_dim have a cosine and a sine.
        dtype: of what is returned.

    """
    if rope is None:
        ones = torch.ones(*positions.shape, head_dim, dtype=dtype)
        return ones, torch.zeros_like(ones)
    rotary_dim = rope.rotary_dim_of(head_dim)
    speeds = rope.base ** -(torch.arange(0, rotary_dim, 2, dtype=torch.float64) / rotary_dim)
    angles = positions[..., None] * speeds
    both = torch.cat([angles, angles], dim=-1)
    return both.cos().to(dtype), both.sin().to(dtype)
