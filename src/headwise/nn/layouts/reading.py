"""From stored parameters to heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from headwise.errors import ArgumentError
from headwise.layout import HeadLayout
from headwise.nn.layouts.forms import bias_heads, fused_rows, out_heads, projection_heads
from headwise.nn.layouts.layout import QKV, Layout
from headwise.nn.layouts.rotary import half_split
from headwise.nn.layouts.rows import FusedRows, Projections
from headwise.nn.layouts.weights import HeadWeights


@dataclass(frozen=True)
class Given:
    """Tensors by the part they play (`query`, `qkv_bias`, ..), and what the user calls each, for messages."""

    tensors: Mapping[str, Tensor]
    names: Mapping[str, str]

    def one(self, role: str) -> tuple[str, Tensor]:
        """Return the name and the tensor of a part, or say that it is missing."""
        name = self.names.get(role, role)
        if role not in self.tensors:
            raise ArgumentError(f"{name} is missing; given are {self.listed()}")
        return name, self.tensors[role]

    def listed(self) -> str:
        """Return the names of what is there."""
        return ", ".join(self.names[role] for role in self.tensors) or "no tensors"


def read(
    layout: Layout, given: Given, *, num_heads: int, num_kv_heads: int | None, rotary_dim: int | None
) -> HeadWeights:
    """Return what is given, head by head.

    Raises:
        ArgumentError: it does not fit the layout.

    """
    try:
        weights = _as_stored(layout, given, num_heads)
        _check_kv_heads(weights, num_kv_heads)
        layout.limits.check(weights)
        return half_split(weights, rotary_dim=rotary_dim) if layout.interleaved_rotary else weights
    except ArgumentError as problem:
        raise ArgumentError(f"layout {layout.name!r}: {problem}") from None


def _as_stored(layout: Layout, given: Given, num_heads: int) -> HeadWeights:
    out = out_heads(*given.one("out"), layout.form, heads=num_heads)
    _check_fusion(layout, given)
    if layout.rows is not None and "qkv" in given.tensors:
        parts = _fused(given, layout, layout.rows, num_heads, out.shape[1])
    else:
        parts = _apart(given, layout, num_heads)
    if layout.rows is not None and "qkv_bias" in given.tensors:
        biases: Sequence[Tensor | None] = _fused_biases(*given.one("qkv_bias"), layout.rows, parts)
    else:
        biases = [
            bias_heads(*given.one(role), layout.form, heads=part.shape[0], width=part.shape[1])
            if (role := f"{name}_bias") in given.tensors
            else None
            for name, part in zip(QKV, parts, strict=True)
        ]
    query_bias, key_bias, value_bias = biases
    return HeadWeights(*parts, out, query_bias, key_bias, value_bias, given.tensors.get("out_bias"))


def _check_fusion(layout: Layout, given: Given) -> None:
    for role in ("qkv", "qkv_bias"):
        if role in given.tensors and layout.rows is None:
            raise ArgumentError(f"{given.names[role]} fuses what lies apart here; given are {given.listed()}")
    for end in ("", "_bias"):
        apart = next((role for name in QKV if (role := f"{name}{end}") in given.tensors), None)
        if apart is not None and f"qkv{end}" in given.tensors:
            raise ArgumentError(
                f"{given.names[f'qkv{end}']} and {given.names[apart]} hold the same part; give one of the two"
            )
    if "qkv" not in given.tensors and "query" not in layout.names:
        raise ArgumentError(
            f"one parameter ({layout.names['qkv']}) holds query, key and value here; given are "
            f"{given.listed()}"
        )


def _fused(given: Given, layout: Layout, fused: FusedRows, num_heads: int, width: int) -> Projections:
    name, weight = given.one("qkv")
    rows = fused_rows(name, weight, layout.form)
    kv_rows = rows.shape[0] - num_heads * width
    if kv_rows <= 0 or kv_rows % (2 * width):
        raise ArgumentError(
            f"{name} has shape {tuple(weight.shape)}, so {rows.shape[0]} rows; {num_heads} query heads of "
            f"{width} leave {kv_rows} for keys and values, which must be a positive multiple of {2 * width}"
        )
    heads = HeadLayout(num_heads=num_heads, num_kv_heads=kv_rows // (2 * width), head_dim=width)
    return fused.split(rows, heads)


def _apart(given: Given, layout: Layout, num_heads: int) -> Projections:
    query = projection_heads(*given.one("query"), layout.form, known=num_heads, what="heads")
    key = projection_heads(*given.one("key"), layout.form, known=query.shape[1], what="elements a head")
    value = projection_heads(*given.one("value"), layout.form, known=key.shape[0], what="heads")
    return Projections(query, key, value)


def _fused_biases(name: str, bias: Tensor, fused: FusedRows, parts: Projections) -> Projections:
    num_heads, head_dim = parts.query.shape[:2]
    heads = HeadLayout(num_heads=num_heads, num_kv_heads=parts.key.shape[0], head_dim=head_dim)
    wanted = (heads.query_width + 2 * heads.key_width,)
    if tuple(bias.shape) != wanted:
        raise ArgumentError(f"{name} has shape {tuple(bias.shape)}; beside its weight it must be {wanted}")
    return fused.split(bias, heads)


def _check_kv_heads(weights: HeadWeights, num_kv_heads: int | None) -> None:
    heads = weights.heads
    if num_kv_heads is not None and num_kv_heads != heads.num_kv_heads:
        raise ArgumentError(
            f"num_kv_heads={num_kv_heads} is given, but beside num_heads={heads.num_heads} of "
            f"{heads.head_dim} elements the shapes hold {heads.num_kv_heads}; check both counts"
        )
