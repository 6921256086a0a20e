"""What the tensors and options of a call must be to fit together: checked, and remembered by their kind."""

from __future__ import annotations

import math
from functools import lru_cache
from numbers import Real
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from headwise import masks
from headwise.errors import ArgumentError
from headwise.ops import visibility
from headwise.ops.visibility import Visibility

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_NUMBERS = (float, int, type(None))

Traits: TypeAlias = tuple[torch.Size, torch.dtype, torch.device, torch.layout]
"""What makes tensors fit together; no named tuple, for it takes longer to make, and a call makes three."""


class Asked(NamedTuple):
    """What is asked of a call beside its tensors, as it was given."""

    mask: Any
    bias: Any
    scale: Any
    softcap: Any
    dropout: Any


class Terms(NamedTuple):
    """The same, once it is known to fit."""

    visibility: Visibility
    scale: float
    softcap: float | None
    dropout: float


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which attention over such a query is computed."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def traits_of(name: str, given: Any) -> Traits:
    """Return the traits of a tensor.

    Raises:
        ArgumentError: it is none.

    """
    if not isinstance(given, Tensor):
        raise ArgumentError(
            f"{name} is a {type(given).__name__}; it must be a torch tensor: torch.as_tensor({name})"
        )
    return given.shape, given.dtype, given.device, given.layout


def settle(query: Traits, key: Traits, value: Traits, asked: Asked) -> Terms:
    """Return the terms of a call, all of it known to fit together.

    Raises:
        ArgumentError: something has a type, shape, dtype, device or value that is not allowed.

    """
    _check_kinds(query, key, value)
    shape, dtype, device, _ = query
    _check_shapes(shape, key[0], value[0])
    batch, num_heads, seq_len, head_dim = shape
    scale, softcap = asked.scale, asked.softcap
    if softcap is not None and not (_is_number("softcap", softcap) and 0 < softcap < math.inf):
        raise ArgumentError(
            f"softcap={softcap} must be a finite number above 0; pass None for no soft-capping"
        )
    if scale is not None and not (_is_number("scale", scale) and math.isfinite(scale)):
        raise ArgumentError(f"scale={scale} must be finite; leave it out for head_dim ** -0.5")
    sizes = masks.Sizes(batch, num_heads, seq_len, key[0][2])
    return Terms(
        visibility=visibility.resolve(asked.mask, asked.bias, sizes, device),
        scale=head_dim**-0.5 if scale is None else float(scale),
        softcap=None if softcap is None else _held(float(softcap), compute_dtype(dtype)),
        dropout=checked_dropout(asked.dropout),
    )


settled = lru_cache(maxsize=64)(settle)
"""`settle`, remembered: the layers of a model, and the steps of a text, ask the same again and again."""


def is_value(asked: Asked) -> bool:
    """Return whether what was asked holds no tensor, which could change, and nothing without a hash."""
    mask = asked.mask
    return (
        asked.bias is None
        and (mask is None or (isinstance(mask, masks.Mask) and mask.is_value))
        and type(asked.scale) in _NUMBERS
        and type(asked.softcap) in _NUMBERS
        and type(asked.dropout) in _NUMBERS
    )


def checked_dropout(dropout: float) -> float:
    """Return `dropout`, or refuse what is no share of the weights.

    Raises:
        ArgumentError: it is not a number of at least 0 and below 1.

    """
    if not (_is_number("dropout", dropout) and 0 <= dropout < 1):
        raise ArgumentError(
            f"dropout={dropout} must be at least 0 and below 1: the share of weights set to 0"
        )
    return float(dropout)


def _check_kinds(query: Traits, key: Traits, value: Traits) -> None:
    for name, (_, dtype, _, layout) in (("query", query), ("key", key), ("value", value)):
        if dtype not in DTYPES:
            allowed = ", ".join(map(_short, DTYPES))
            raise ArgumentError(f"{name} has dtype {_short(dtype)}; allowed are {allowed}")
        if layout is not torch.strided:
            raise ArgumentError(f"{name} has layout {_short(layout)}; it must be dense: {name}.to_dense()")
    dtypes, devices = (query[1], key[1], value[1]), (query[2], key[2], value[2])
    if not dtypes[0] == dtypes[1] == dtypes[2]:
        raise _different("dtype", *dtypes)
    if not devices[0] == devices[1] == devices[2]:
        raise _different("device", *devices)


def _short(kind: torch.dtype | torch.layout | torch.device) -> str:
    return str(kind).removeprefix("torch.")


def _different(attribute: str, *kinds: torch.dtype | torch.device) -> ArgumentError:
    query, key, value = map(_short, kinds)
    return ArgumentError(
        f"query, key and value differ in {attribute}: query {query}, key {key}, value {value}; "
        f"convert them to one, for example key.to(query.{attribute})"
    )


def _check_shapes(query: torch.Size, key: torch.Size, value: torch.Size) -> None:
    for name, shape, heads in (
        ("query", query, "num_heads"),
        ("key", key, "num_kv_heads"),
        ("value", value, "num_kv_heads"),
    ):
        if len(shape) != 4:
            raise ArgumentError(
                f"{name} has rank {len(shape)}, shape {tuple(shape)}; it must have rank 4, "
                f"[batch, {heads}, length, width]; add the missing axes with unsqueeze"
            )
    batch, num_heads, _, head_dim = query
    key_batch, num_kv_heads, kv_len, key_head_dim = key
    value_batch, value_heads, value_len, _ = value
    if not batch == key_batch == value_batch:
        raise ArgumentError(
            f"batch sizes differ: {_shapes(query, key, value)}; expand the smaller ones to one batch size"
        )
    if num_kv_heads != value_heads or kv_len != value_len:
        raise ArgumentError(
            f"key and value differ in num_kv_heads or kv_len: {_shapes(query, key, value)}; "
            "both must be [batch, num_kv_heads, kv_len, width]"
        )
    if head_dim != key_head_dim or head_dim == 0:
        raise ArgumentError(
            f"query has head_dim {head_dim}, key has head_dim {key_head_dim}; they must be equal and "
            "at least 1 (only value may have a width of its own)"
        )
    if num_kv_heads == 0 or num_heads == 0 or num_heads % num_kv_heads:
        raise ArgumentError(
            f"num_heads={num_heads} is not a positive multiple of num_kv_heads={num_kv_heads}; each KV head "
            "is read by num_heads // num_kv_heads query heads; is the layout [batch, heads, length, width]?"
        )


def _shapes(query: torch.Size, key: torch.Size, value: torch.Size) -> str:
    return f"query {tuple(query)}, key {tuple(key)}, value {tuple(value)}"


def _held(number: float, dtype: torch.dtype) -> float:
    """Return the nearest positive number that `dtype` holds, which rounding might take for 0 or infinite."""
    limits = torch.finfo(dtype)
    return min(max(number, limits.tiny), limits.max)


def _is_number(name: str, given: Any) -> bool:
    if isinstance(given, bool) or not isinstance(given, Real):
        raise ArgumentError(f"{name} is a {type(given).__name__}; it must be a plain number")
    return True
