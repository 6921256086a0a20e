"""The weights of one attention layer, head by head: what every layout is read into and written from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from headwise.errors import ArgumentError
from headwise.layout import HeadLayout


@dataclass(frozen=True, eq=False)
class HeadWeights:
    """The weights of one attention layer; first axis the head, second the element of that head.

    Head h computes `q = query[h] @ x + query_bias[h]`, keys and values alike from KV head
    `h // (num_heads // num_kv_heads)`, and adds `head_output @ out[h]` to the output of the layer. Where the
    model has rotary positions, elements i and i + rotary_dim / 2 of a head turn together (the half-split
    order; `half_split` and `interleaved` go between the two orders).

    Args:
        query: `[num_heads, head_dim, d_model]`.
        key: `[num_kv_heads, head_dim, key_dim]`; key_dim is d_model in self-attention.
        value: `[num_kv_heads, value_head_dim, value_dim]`.
        out: `[num_heads, value_head_dim, out_dim]`; out_dim is d_model almost everywhere.
        query_bias: `[num_heads, head_dim]`, or None as every bias.
        key_bias: `[num_kv_heads, head_dim]`.
        value_bias: `[num_kv_heads, value_head_dim]`.
        out_bias: `[out_dim]`.

    Raises:
        ArgumentError: the shapes do not belong to one layer.

    Example:
        >>> import torch
        >>> weights = HeadWeights(
        ...     query=torch.randn(6, 4, 24),
        ...     key=torch.randn(2, 4, 24),
        ...     value=torch.randn(2, 4, 24),
        ...     out=torch.randn(6, 4, 24),
        ... )
        >>> weights.heads.group_size, weights.with_own_kv_heads().key.shape
        (3, torch.Size([6, 4, 24]))

    """

    query: Tensor
    key: Tensor
    value: Tensor
    out: Tensor
    query_bias: Tensor | None = None
    key_bias: Tensor | None = None
    value_bias: Tensor | None = None
    out_bias: Tensor | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            _check_tensor(field.name, getattr(self, field.name), optional=field.name.endswith("_bias"))
        for name, axes in _AXES.items():
            weight = getattr(self, name)
            if weight.dim() != 3:
                raise ArgumentError(f"{name} has shape {tuple(weight.shape)}; it must be {axes}")
        _same("key", self.key, "value", self.value, axis=0, what="KV heads")
        _same("query", self.query, "key", self.key, axis=1, what="elements a head (head_dim)")
        _same("query", self.query, "out", self.out, axis=0, what="heads")
        _same("value", self.value, "out", self.out, axis=1, what="elements a head (value_head_dim)")
        _ = self.heads  # refuses KV heads that do not divide the heads
        wanted = {name: tuple(getattr(self, name).shape[:2]) for name in ("query", "key", "value")}
        wanted["out"] = (self.out.shape[2],)
        for name, shape in wanted.items():
            bias = getattr(self, f"{name}_bias")
            if bias is not None and tuple(bias.shape) != shape:
                raise ArgumentError(
                    f"{name}_bias has shape {tuple(bias.shape)}; beside {name} of shape "
                    f"{tuple(getattr(self, name).shape)} it must be {shape}"
                )

    @cached_property
    def heads(self) -> HeadLayout:
        """How many heads there are, and how wide each is."""
        return HeadLayout(
            num_heads=self.query.shape[0],
            num_kv_heads=self.key.shape[0],
            head_dim=self.query.shape[1],
            value_head_dim=self.value.shape[1],
        )

    @property
    def d_model(self) -> int:
        """Width of what the queries are made from."""
        return self.query.shape[2]

    def mapped(self, change: Callable[[Tensor], Tensor]) -> HeadWeights:
        """Return the weights with every tensor changed, for another dtype or device.

        Example:
            >>> import torch
            >>> plain = HeadWeights(*(torch.ones(1, 2, 2) for _ in range(4)))
            >>> plain.mapped(torch.Tensor.double).out.dtype
            torch.float64

        """
        biases = (self.query_bias, self.key_bias, self.value_bias, self.out_bias)
        return HeadWeights(
            *(change(weight) for weight in (self.query, self.key, self.value, self.out)),
            *(None if bias is None else change(bias) for bias in biases),
        )

    def with_own_kv_heads(self) -> HeadWeights:
        """Return the same layer with a copy of its KV head for every query head, for layouts without GQA."""

        def repeated(given: Tensor | None) -> Tensor | None:
            return None if given is None else given.repeat_interleave(self.heads.group_size, dim=0)

        return replace(
            self,
            key=self.key.repeat_interleave(self.heads.group_size, dim=0),
            value=self.value.repeat_interleave(self.heads.group_size, dim=0),
            key_bias=repeated(self.key_bias),
            value_bias=repeated(self.value_bias),
        )

    def with_all_biases(self) -> HeadWeights:
        """Return the same layer with zeros where it has no bias, for layouts that have all or none."""

        def filled(bias: Tensor | None, weight: Tensor, shape: torch.Size) -> Tensor:
            return weight.new_zeros(shape) if bias is None else bias

        return replace(
            self,
            query_bias=filled(self.query_bias, self.query, self.query.shape[:2]),
            key_bias=filled(self.key_bias, self.key, self.key.shape[:2]),
            value_bias=filled(self.value_bias, self.value, self.value.shape[:2]),
            out_bias=filled(self.out_bias, self.out, self.out.shape[2:]),
        )

    def identical(self, other: HeadWeights) -> bool:
        """Return whether every number is the same, bit for bit, and the same biases exist."""
        return all(
            _identical(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)
        )


_AXES = {
    "query": "[num_heads, head_dim, d_model]",
    "key": "[num_kv_heads, head_dim, key_dim]",
    "value": "[num_kv_heads, value_head_dim, value_dim]",
    "out": "[num_heads, value_head_dim, out_dim]",
}


def check_weights(given: Any) -> None:
    """Refuse what is no weights by head."""
    if not isinstance(given, HeadWeights):
        raise ArgumentError(
            f"weights is a {type(given).__name__}; pass HeadWeights, as read_weights returns them"
        )


def _check_tensor(name: str, given: Any, *, optional: bool) -> None:
    if not isinstance(given, Tensor) and not (optional and given is None):
        raise ArgumentError(f"{name} is a {type(given).__name__}; pass a tensor")


def _same(name: str, one: Tensor, other_name: str, other: Tensor, *, axis: int, what: str) -> None:
    if one.shape[axis] != other.shape[axis]:
        raise ArgumentError(
            f"{name} has {one.shape[axis]} {what} and {other_name} has {other.shape[axis]} (shapes "
            f"{tuple(one.shape)} and {tuple(other.shape)}); the two must agree"
        )


def _identical(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.dtype == other.dtype and torch.equal(one, other)
