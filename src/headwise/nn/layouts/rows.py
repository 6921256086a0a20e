"""How query, key and value share the rows of one fused matrix, or the elements of one fused bias.

A projection here is `[heads, width, ...]`; what follows the first two axes (d_model for a weight, nothing for
a bias) rides along.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from headwise.layout import HeadLayout


class Projections(NamedTuple):
    """Query `[num_heads, width, ...]`, key and value `[num_kv_heads, width, ...]`."""

    query: Tensor
    key: Tensor
    value: Tensor


class FusedRows(NamedTuple):
    """One way to lay the rows, and its inverse."""

    words: str
    fuse: Callable[[Projections], Tensor]
    split: Callable[[Tensor, HeadLayout], Projections]


def divided(rows: Tensor, *counts: int) -> Tensor:
    """Return `[rows, ...]` as `[*counts, ...]`, where -1 stands for what is left."""
    return rows.reshape(*counts, *rows.shape[1:])


def _concatenate(given: Projections) -> Tensor:
    return torch.cat([projection.flatten(0, 1) for projection in given])


def _split_concatenated(rows: Tensor, heads: HeadLayout) -> Projections:
    counts = (heads.num_heads, heads.num_kv_heads, heads.num_kv_heads)
    parts = torch.split(rows, [count * heads.head_dim for count in counts])
    return Projections(*(divided(part, count, -1) for part, count in zip(parts, counts, strict=True)))


def _group(given: Projections) -> Tensor:
    # query [num_heads, width, ...] -> [num_kv_heads, group_size, width, ...]
    query = divided(given.query, len(given.key), -1)
    return torch.cat([query, given.key[:, None], given.value[:, None]], dim=1).flatten(0, 2)


def _split_grouped(rows: Tensor, heads: HeadLayout) -> Projections:
    # [num_kv_heads, group_size + 2, head_dim, ...]
    groups = divided(rows, heads.num_kv_heads, heads.group_size + 2, heads.head_dim)
    return Projections(groups[:, :-2].flatten(0, 1), groups[:, -2], groups[:, -1])


CONCATENATED = FusedRows(
    "every query head, every key head, every value head", _concatenate, _split_concatenated
)
GROUPED = FusedRows("a KV head at a time: its query heads, its key, its value", _group, _split_grouped)
