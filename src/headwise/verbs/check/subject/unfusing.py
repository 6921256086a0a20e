"""From fused rows to those of query, key and value: one block after another, or head by head."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headwise.verbs.check.asking import Projection, Sizes

BLOCKS, PER_HEAD = "blocks", "per head"


def rows_of(letters: str, sizes: Sizes) -> list[int]:
    """Return how many rows each part has, in the order of the letters."""
    return [count * width for count, width in (_heads(letter, sizes) for letter in letters)]


def taken_apart(fused: Projection, letters: str, sizes: Sizes) -> dict[str, dict[str, Projection]]:
    """Return each way of taking a fused map apart, by its name: the parts by letter."""
    return {
        name: _parts(fused, letters, [split(each, letters, sizes) for each in _tensors(fused)])
        for name, split in ((BLOCKS, _blocks), (PER_HEAD, _per_head))
    }


def _tensors(fused: Projection) -> list[Tensor]:
    return [fused.weight] if fused.bias is None else [fused.weight, fused.bias]


def _parts(fused: Projection, letters: str, split: Sequence[Sequence[Tensor]]) -> dict[str, Projection]:
    weights = split[0]
    biases: Sequence[Tensor | None] = [None] * len(letters) if fused.bias is None else split[1]
    return {
        letter: Projection(weight, bias)
        for letter, weight, bias in zip(letters, weights, biases, strict=True)
    }


def _blocks(rows: Tensor, letters: str, sizes: Sizes) -> list[Tensor]:
    return list(torch.split(rows, rows_of(letters, sizes)))


def _per_head(rows: Tensor, letters: str, sizes: Sizes) -> list[Tensor]:
    """Return the parts of rows that hold a KV head at a time: its queries, its key, its value."""
    # [num_kv_heads, rows of one, ...]
    by_head = rows.reshape(sizes.num_kv_heads, -1, *rows.shape[1:])
    counts = [count // sizes.num_kv_heads for count in rows_of(letters, sizes)]
    return [part.flatten(0, 1) for part in torch.split(by_head, counts, dim=1)]


def _heads(letter: str, sizes: Sizes) -> tuple[int, int]:
    return {
        "q": (sizes.num_heads, sizes.head_dim),
        "k": (sizes.num_kv_heads, sizes.head_dim),
        "v": (sizes.num_kv_heads, sizes.value_head_dim),
    }[letter]
