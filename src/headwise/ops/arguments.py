"""The arguments of an attention call: checked once, here, and handed on as one frozen value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwise import masks
from headwise.errors import ArgumentError
from headwise.ops import visibility
from headwise.ops.visibility import Visibility

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_NUMBERS = (float, int, type(None))


@dataclass(frozen=True)
class Call:
    """One attention call whose arguments are known to fit together.

    - query `[batch, num_heads, seq_len, head_dim]`, key `[batch, num_kv_heads, kv_len, head_dim]`,
      value `[batch, num_kv_heads, kv_len, value_head_dim]`
    - sinks `[num_heads]`, or `[batch, num_heads]` where `torch.vmap` maps them; head_gates
      `[batch or 1, num_heads]`; both in `compute_dtype`
    - seed: int64 `[1]`, which weights dropout drops; None until `ops.dropout.seeded` draws one
    """

    query: Tensor
    key: Tensor
    value: Tensor
    visibility: Visibility
    scale: float
    softcap: float | None
    sinks: Tensor | None
    head_gates: Tensor | None
    dropout: float
    seed: Tensor | None = None

    @property
    def sizes(self) -> masks.Sizes:
        """The sizes a mask has to fit."""
        return self.visibility.sizes

    @property
    def num_kv_heads(self) -> int:
        """The number of key and value heads."""
        return self.key.shape[1]

    @property
    def group_size(self) -> int:
        """The number of query heads that read one KV head."""
        return self.query.shape[1] // self.key.shape[1]

    @property
    def compute_dtype(self) -> torch.dtype:
        """The dtype of scores, softmax and weighted sum: float64 for float64, else float32."""
        return compute_dtype(self.query)

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors of the call, seed aside."""
        found = [self.query, self.key, self.value, *self.visibility.boolean, *self.visibility.additive]
        if self.sinks is not None:
            found.append(self.sinks)
        if self.head_gates is not None:
            found.append(self.head_gates)
        return found

    def gated(self, output: Tensor) -> Tensor:
        """Return `output`, `[batch, num_heads, rows, value_head_dim]`, times the gate of each head."""
        return output if self.head_gates is None else output * self.head_gates[..., None, None]


def compute_dtype(query: Tensor | _Traits) -> torch.dtype:
    """Return the dtype in which attention over such a query is computed."""
    return torch.float64 if query.dtype == torch.float64 else torch.float32


def check(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    head_gates: Tensor | None = None,
    dropout: float = 0.0,
) -> Call:
    """Return the checked call.

    Raises:
        ArgumentError: an argument has a type, shape, dtype, device or value that is not allowed.

    """
    traits = _traits("query", query), _traits("key", key), _traits("value", value)
    if torch._C._is_any_autocast_enabled():
        query, key, value = _autocast(query), _autocast(key), _autocast(value)
        traits = _traits("query", query), _traits("key", key), _traits("value", value)
    asked = _Asked(mask, bias, scale, softcap, dropout)
    is_plain = type(query) is type(key) is type(value) is Tensor and not torch.compiler.is_compiling()
    settle = _settled if is_plain and _is_value(asked) else _settle
    terms = settle(*traits, asked)
    batch, num_heads = query.shape[:2]
    if sinks is not None:
        sinks = _per_head("sinks", sinks, query, [(num_heads,)])
    if head_gates is not None:
        head_gates = _per_head("head_gates", head_gates, query, [(num_heads,), (batch, num_heads)])
        head_gates = head_gates.reshape(-1, num_heads)
    return Call(
        query, key, value, terms.visibility, terms.scale, terms.softcap, sinks, head_gates, terms.dropout
    )


class _Traits(NamedTuple):
    """What makes tensors fit together."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    layout: torch.layout


class _Asked(NamedTuple):
    """What is asked of a call beside its tensors, as it was given."""

    mask: Any
    bias: Any
    scale: Any
    softcap: Any
    dropout: Any


class _Terms(NamedTuple):
    """The same, once it is known to fit."""

    visibility: Visibility
    scale: float
    softcap: float | None
    dropout: float


def _autocast(tensor: Tensor) -> Tensor:
    """Return a tensor as torch's own attention takes it under autocast: float64, which it leaves, aside."""
    device = tensor.device.type
    if not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return tensor
    if not tensor.is_floating_point() or tensor.dtype is torch.float64:
        return tensor
    return tensor.to(torch.get_autocast_dtype(device))


def _traits(name: str, given: Any) -> _Traits:
    if not isinstance(given, Tensor):
        raise ArgumentError(
            f"{name} is a {type(given).__name__}; it must be a torch tensor: torch.as_tensor({name})"
        )
    return _Traits(given.shape, given.dtype, given.device, given.layout)


def _settle(query: _Traits, key: _Traits, value: _Traits, asked: _Asked) -> _Terms:
    """Return the terms of a call, all of it known to fit together."""
    _check_kinds(query, key, value)
    _check_shapes(query.shape, key.shape, value.shape)
    batch, num_heads, seq_len, head_dim = query.shape
    scale, softcap = asked.scale, asked.softcap
    if softcap is not None and not (_is_number("softcap", softcap) and 0 < softcap < math.inf):
        raise ArgumentError(
            f"softcap={softcap} must be a finite number above 0; pass None for no soft-capping"
        )
    if scale is not None and not (_is_number("scale", scale) and math.isfinite(scale)):
        raise ArgumentError(f"scale={scale} must be finite; leave it out for head_dim ** -0.5")
    sizes = masks.Sizes(batch, num_heads, seq_len, key.shape[2])
    return _Terms(
        visibility=visibility.resolve(asked.mask, asked.bias, sizes, query.device),
        scale=head_dim**-0.5 if scale is None else float(scale),
        softcap=None if softcap is None else _held(float(softcap), compute_dtype(query)),
        dropout=checked_dropout(asked.dropout),
    )


_settled = lru_cache(maxsize=64)(_settle)
"""`_settle`, remembered: the layers of a model, and the steps of a text, ask the same again and again."""


def _is_value(asked: _Asked) -> bool:
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


def _check_kinds(query: _Traits, key: _Traits, value: _Traits) -> None:
    for name, given in (("query", query), ("key", key), ("value", value)):
        if given.dtype not in DTYPES:
            allowed = ", ".join(map(_short, DTYPES))
            raise ArgumentError(f"{name} has dtype {_short(given.dtype)}; allowed are {allowed}")
        if given.layout is not torch.strided:
            raise ArgumentError(
                f"{name} has layout {_short(given.layout)}; it must be dense: {name}.to_dense()"
            )
    if not query.dtype == key.dtype == value.dtype:
        raise _different("dtype", _short(query.dtype), _short(key.dtype), _short(value.dtype))
    if not query.device == key.device == value.device:
        raise _different("device", str(query.device), str(key.device), str(value.device))


def _short(kind: torch.dtype | torch.layout) -> str:
    return str(kind).removeprefix("torch.")


def _different(attribute: str, query: str, key: str, value: str) -> ArgumentError:
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


def _per_head(name: str, given: Any, query: Tensor, allowed: list[tuple[int, ...]]) -> Tensor:
    """Return `given`, a float tensor of one of the `allowed` shapes, in the dtype of computation."""
    expected = " or ".join(map(str, allowed))
    if not isinstance(given, Tensor) or not given.dtype.is_floating_point:
        kind = str(given.dtype) if isinstance(given, Tensor) else type(given).__name__
        raise ArgumentError(
            f"{name} is a {kind}; it must be a float tensor of shape {expected}, one number per query head"
        )
    if tuple(given.shape) not in allowed:
        raise ArgumentError(
            f"{name} has shape {tuple(given.shape)}; it must be {expected}, one number per query head"
        )
    if given.device != query.device:
        raise ArgumentError(
            f"{name} is on {given.device}, query on {query.device}; they must be on one device"
        )
    return given.to(compute_dtype(query))


def _held(number: float, dtype: torch.dtype) -> float:
    """Return the nearest positive number that `dtype` holds, which rounding might take for 0 or infinite."""
    limits = torch.finfo(dtype)
    return min(max(number, limits.tiny), limits.max)


def _is_number(name: str, given: Any) -> bool:
    if isinstance(given, bool) or not isinstance(given, Real):
        raise ArgumentError(f"{name} is a {type(given).__name__}; it must be a plain number")
    return True
