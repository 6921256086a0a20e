"""The two orders that rotary positions give the elements of a head.

A rotary pair is two elements of a head that turn together. Half-split models pair i with i + rotary_dim /
2, interleaved ones pair 2i with 2i + 1. Reordering the rows of query and key alike changes one into the other
and leaves every score as it was.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from headwise.nn.layouts.weights import HeadWeights, check_weights
from headwise.rope import Rope


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
    check_weights(weights)
    size = Rope(rotary_dim=rotary_dim).rotary_dim_of(weights.heads.head_dim)
    pairs = torch.arange(size).view(-1, 2)
    return _reordered(weights, pairs.T.flatten())


def interleaved(weights: HeadWeights, *, rotary_dim: int | None = None) -> HeadWeights:
    """Return half-split weights in interleaved order; the inverse of `half_split`, bit for bit."""
    check_weights(weights)
    size = Rope(rotary_dim=rotary_dim).rotary_dim_of(weights.heads.head_dim)
    halves = torch.arange(size).view(2, -1)
    return _reordered(weights, halves.T.flatten())


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
