"""The arguments of an attention call: checked once, here, and handed on as one frozen value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from headwise import masks
from headwise.errors import ArgumentError
from headwise.ops import visibility
from headwise.ops.visibility import Visibility

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Call:
    """One attention call whose arguments are known to fit together.

    - query `[batch, num_heads, seq_len, head_dim]`, key `[batch, num_kv_heads, kv_len, head_dim]`,
      value `[batch, num_kv_heads, kv_len, value_head_dim]`
    - sinks `[num_heads]`, head_gates `[batch or 1, num_heads]`, both in `compute_dtype`
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

    def gated(self, output: Tensor) -> Tensor:
        """Return `output`, `[batch, num_heads, rows, value_head_dim]`, times the gate of each head."""
        return output if self.head_gates is None else output * self.head_gates[..., None, None]


def compute_dtype(query: Tensor) -> torch.dtype:
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
    _check_tensors(query, key, value)
    _check_shapes(query, key, value)
    batch, num_heads, seq_len, head_dim = query.shape
    sizes = masks.Sizes(batch, num_heads, seq_len, key.shape[2])
    if sinks is not None:
        sinks = _per_head("sinks", sinks, query, [(num_heads,)])
    if head_gates is not None:
        head_gates = _per_head("head_gates", head_gates, query, [(num_heads,), (batch, num_heads)])
        head_gates = head_gates.reshape(-1, num_heads)
    if softcap is not None and not (_is_number("softcap", softcap) and 0 < softcap < math.inf):
        raise ArgumentError(
            f"softcap={softcap} must be a finite number above 0; pass None for no soft-capping"
        )
    if scale is not None and not (_is_number("scale", scale) and math.isfinite(scale)):
        raise ArgumentError(f"scale={scale} must be finite; leave it out for head_dim ** -0.5")
    return Call(
        query=query,
        key=key,
        value=value,
        visibility=visibility.resolve(mask, bias, sizes, query.device),
        scale=head_dim**-0.5 if scale is None else float(scale),
        softcap=None if softcap is None else _held(float(softcap), compute_dtype(query)),
        sinks=sinks,
        head_gates=head_gates,
        dropout=checked_dropout(dropout),
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


def _check_tensors(query: Tensor, key: Tensor, value: Tensor) -> None:
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, Tensor):
            raise ArgumentError(
                f"{name} is a {type(tensor).__name__}; it must be a torch tensor: torch.as_tensor({name})"
            )
        if tensor.dtype not in DTYPES:
            allowed = ", ".join(map(_short, DTYPES))
            raise ArgumentError(f"{name} has dtype {_short(tensor.dtype)}; allowed are {allowed}")
        if tensor.layout is not torch.strided:
            raise ArgumentError(
                f"{name} has layout {_short(tensor.layout)}; it must be dense: {name}.to_dense()"
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


def _check_shapes(query: Tensor, key: Tensor, value: Tensor) -> None:
    for name, tensor, heads in (
        ("query", query, "num_heads"),
        ("key", key, "num_kv_heads"),
        ("value", value, "num_kv_heads"),
    ):
        if tensor.dim() != 4:
            raise ArgumentError(
                f"{name} has rank {tensor.dim()}, shape {tuple(tensor.shape)}; it must have rank 4, "
                f"[batch, {heads}, length, width]; add the missing axes with unsqueeze"
            )
    batch, num_heads, _, head_dim = query.shape
    key_batch, num_kv_heads, kv_len, key_head_dim = key.shape
    value_batch, value_heads, value_len, _ = value.shape
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


def _shapes(query: Tensor, key: Tensor, value: Tensor) -> str:
    return f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"


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
