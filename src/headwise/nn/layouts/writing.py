"""From heads to stored parameters: the inverse of reading, bit for bit."""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.errors import ArgumentError
from headwise.nn.layouts.forms import stored_bias, stored_out, stored_projection, stored_rows
from headwise.nn.layouts.layout import QKV, Layout
from headwise.nn.layouts.rotary import interleaved
from headwise.nn.layouts.rows import Projections
from headwise.nn.layouts.weights import HeadWeights, check_weights


def write(layout: Layout, weights: HeadWeights, *, rotary_dim: int | None) -> dict[str, Tensor]:
    """Return the parameters by name, each in memory of its own.

    Raises:
        ArgumentError: no module of this layout can hold the weights.

    """
    check_weights(weights)
    try:
        layout.limits.check(weights)
        ordered = interleaved(weights, rotary_dim=rotary_dim) if layout.interleaved_rotary else weights
        parts = {**_weights(layout, ordered), **_biases(layout, ordered)}
    except ArgumentError as problem:
        raise ArgumentError(f"layout {layout.name!r}: {problem}") from None
    # Parts of one storage would be refused by safetensors, and change together when changed in place.
    return {
        layout.names[role]: part.clone(memory_format=torch.contiguous_format) for role, part in parts.items()
    }


def _weights(layout: Layout, weights: HeadWeights) -> dict[str, Tensor]:
    projections = Projections(weights.query, weights.key, weights.value)
    one_input = len({projection.shape[2] for projection in projections}) == 1
    if layout.rows is not None and one_input:
        parts = {"qkv": stored_rows(layout.rows.fuse(projections), layout.form)}
    else:
        parts = {
            role: stored_projection(projection, layout.form)
            for role, projection in zip(QKV, projections, strict=True)
        }
    return {**parts, "out": stored_out(weights.out, layout.form)}


def _biases(layout: Layout, weights: HeadWeights) -> dict[str, Tensor]:
    every = dict(zip(QKV, (weights.query_bias, weights.key_bias, weights.value_bias), strict=True))
    there = {role: bias for role, bias in every.items() if bias is not None}
    if layout.rows is None:
        parts = {f"{role}_bias": stored_bias(bias, layout.form) for role, bias in there.items()}
    elif not there:
        parts = {}
    elif len(there) == len(QKV):
        parts = {"qkv_bias": layout.rows.fuse(Projections(**there))}
    else:
        raise ArgumentError(
            f"{layout.names['qkv_bias']} holds the biases of query, key and value, and only "
            f"{' and '.join(there)} have one; HeadWeights.with_all_biases() adds zeros for the others"
        )
    return parts if weights.out_bias is None else {**parts, "out_bias": weights.out_bias}
