"""What may be given to a cache: checked before anything is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from headwise.counts import checked_index
from headwise.errors import ArgumentError
from headwise.masks.shapes import checked_counts


def check_new(key: Tensor, value: Tensor) -> None:
    """Refuse keys and values that no cache takes.

    Raises:
        ArgumentError: one is no tensor of rank 4 or needs a gradient, or more than their width differs.

    """
    for name, width, tensor in (("key", "head_dim", key), ("value", "value_head_dim", value)):
        if not isinstance(tensor, Tensor):
            raise ArgumentError(
                f"{name} is a {type(tensor).__name__}; it must be a torch tensor: torch.as_tensor({name})"
            )
        if tensor.dim() != 4:
            raise ArgumentError(
                f"{name} has rank {tensor.dim()}, shape {tuple(tensor.shape)}; it must have rank 4, "
                f"[batch, num_kv_heads, new tokens, {width}]; add the missing axes with unsqueeze"
            )
        if tensor.requires_grad and torch.is_grad_enabled():
            raise ArgumentError(
                f"{name} requires a gradient, and a cache passes none on: it is for inference; run the model "
                f"under torch.no_grad(), or append {name}.detach()"
            )
    if key.shape[:3] != value.shape[:3]:
        raise ArgumentError(
            f"key has shape {tuple(key.shape)} and value {tuple(value.shape)}; both must be "
            "[batch, num_kv_heads, new tokens, width], and only the width may differ"
        )
    for attribute in ("dtype", "device"):
        ours, theirs = getattr(key, attribute), getattr(value, attribute)
        if ours != theirs:
            raise ArgumentError(
                f"key has {attribute} {ours} and value {theirs}; convert one: value.to(key.{attribute})"
            )


def check_same_kind(name: str, new: Tensor, held: Tensor) -> None:
    """Refuse new keys (or values) that differ from those held in anything but the number of tokens.

    Raises:
        ArgumentError: they differ.

    """
    batch, heads, _, width = held.shape
    if (new.shape[0], new.shape[1], new.shape[3]) != (batch, heads, width):
        raise ArgumentError(
            f"{name} has shape {tuple(new.shape)}, but the cache holds batch {batch}, num_kv_heads {heads} "
            f"and a {name} width of {width}; only the number of tokens may change: reorder() gives the cache "
            "another batch, reset() empties it"
        )
    for attribute in ("dtype", "device"):
        ours, theirs = getattr(new, attribute), getattr(held, attribute)
        if ours != theirs:
            raise ArgumentError(
                f"{name} has {attribute} {ours}, but the cache holds {theirs}; append {name}.to({theirs}), "
                "or start again with reset()"
            )


def checked_lengths(lengths: Any, batch: int, new_len: int) -> tuple[int, ...]:
    """Return how many of the `new_len` new tokens of each row are real: all of them if `lengths` is None.

    Raises:
        ArgumentError: there is not one count for each row, or one is negative or above `new_len`.

    """
    if lengths is None:
        return (new_len,) * batch
    counts = checked_counts("lengths", lengths)
    if len(counts) != batch:
        raise ArgumentError(
            f"lengths has {len(counts)} entries, but batch is {batch}; give one for each batch element"
        )
    if counts and max(counts) > new_len:
        raise ArgumentError(
            f"lengths has an entry of {max(counts)}, but key has only {new_len} new tokens; lengths counts "
            "the real ones of this append, padding stands behind them"
        )
    return counts


def checked_rows(indices: Any, batch: int) -> tuple[int, ...]:
    """Return `indices`, a list or tensor of rows to keep, as plain integers.

    Raises:
        ArgumentError: it is no list of integers, or there is no such row.

    """
    if not isinstance(indices, Iterable):
        raise ArgumentError(f"indices is {indices!r}; it must be a list of rows, such as [{indices!r}]")
    plain = (item.item() if hasattr(item, "item") else item for item in indices)
    return tuple(checked_index("an entry of indices", index, batch) for index in plain)
