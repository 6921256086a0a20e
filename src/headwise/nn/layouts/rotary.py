"""Rotary positions: the two orders of a head's elements, and the turning itself.

A rotary pair is two elements of a head that turn together. Half-split models pair i with i + rotary_dim /
2, interleaved ones pair 2i with 2i + 1. Reordering the rows of query and key alike changes one into the other
and leaves every score as it was.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from headwise.counts import checked_size
from headwise.errors import ArgumentError
from headwise.nn.layouts.weights import HeadWeights


def half_split(weights: HeadWeights, *, rotary_dim: int | None = None) -> HeadWeights:
    """Return interleaved weights in half-split order: elements 0, 2, 4 .. of each head, then 1, 3, 5 ..

    Args:
        weights: query, key and their biases are reordered; value and out have no positions.
        rotary_dim: how many leading elements of a head turn; all of them by default.

    Raises:
        ArgumentError: rotary_dim is odd or larger than head_dim.

    Example:
        >>> import torch
        >>> rows = torch.arange(6.0)[None, :, None]
        >>> halves = half_split(HeadWeights(query=rows, key=rows, value=rows, out=rows))
        >>> halves.query.flatten().tolist()
        [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]
        >>> interleaved(halves).identical(HeadWeights(query=rows, key=rows, value=rows, out=rows))
        True

    Source: Su et al. 2021 (RoFormer), equation 15, pairs neighbours; GPT-NeoX and Llama in transformers pair
    halves.

    """
    size = _checked_rotary_dim(rotary_dim, weights)
    pairs = torch.arange(size).view(-1, 2)
    return _reordered(weights, pairs.T.flatten())


def interleaved(weights: HeadWeights, *, rotary_dim: int | None = None) -> HeadWeights:
    """Return half-split weights in interleaved order; the inverse of `half_split`, bit for bit."""
    size = _checked_rotary_dim(rotary_dim, weights)
    halves = torch.arange(size).view(2, -1)
    return _reordered(weights, halves.T.flatten())


def rotary_angles(seq_len: int, rotary_dim: int, *, base: float = 10_000.0) -> Tensor:
    """Return the angle of every position and pair, `[seq_len, rotary_dim / 2]`, float64 radians.

    Args:
        seq_len: how many positions, from 0.
        rotary_dim: elements of a head that turn.
        base: theta of the angles: pair i turns by `base ** (-2 i / rotary_dim)` a position.

    Raises:
        ArgumentError: rotary_dim is odd.

    Example:
        >>> rotary_angles(3, 4, base=100.0)[2].tolist()
        [2.0, 0.2]

    Source: Su et al. 2021, section 3.3.

    """
    if checked_size("rotary_dim", rotary_dim) % 2:
        raise ArgumentError(f"rotary_dim={rotary_dim} is odd; elements turn in pairs")
    speeds = base ** (-torch.arange(0, rotary_dim, 2, dtype=torch.float64) / rotary_dim)
    return torch.outer(torch.arange(checked_size("seq_len", seq_len), dtype=torch.float64), speeds)


def turned(heads: Tensor, angles: Tensor) -> Tensor:
    """Return half-split heads `[batch, heads, seq_len, head_dim]`, their leading pairs turned by `angles`."""
    half = angles.shape[-1]
    first, second, rest = heads[..., :half], heads[..., half : 2 * half], heads[..., 2 * half :]
    cos, sin = angles.cos().to(heads.dtype), angles.sin().to(heads.dtype)
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], dim=-1)


def _checked_rotary_dim(rotary_dim: int | None, weights: HeadWeights) -> int:
    """Return how many leading elements of a head turn, or refuse a number that cannot be."""
    head_dim = weights.heads.head_dim
    size = head_dim if rotary_dim is None else checked_size("rotary_dim", rotary_dim)
    if size % 2 or size > head_dim:
        given = f"head_dim={head_dim}" if rotary_dim is None else f"rotary_dim={size}"
        raise ArgumentError(
            f"{given} cannot turn in pairs; rotary_dim must be even and at most head_dim={head_dim}"
        )
    return size


def _reordered(weights: HeadWeights, order: Tensor) -> HeadWeights:
    rest = torch.arange(len(order), weights.heads.head_dim)
    places = torch.cat([order, rest]).to(weights.query.device)

    def taken(given: Tensor | None) -> Tensor | None:
        return None if given is None else given.index_select(1, places)

    return replace(
        weights,
        query=weights.query.index_select(1, places),
        key=weights.key.index_select(1, places),
        query_bias=taken(weights.query_bias),
        key_bias=taken(weights.key_bias),
    )
