"""The layer that some weights are, run by `headwise.attention`: what a reading is judged by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headwise.nn.layouts.weights import HeadWeights
from headwise.ops import attention
from headwise.rope import Rope


def attend(
    weights: HeadWeights,
    inputs: tuple[Tensor, Tensor, Tensor],
    *,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    rope: Rope | None = None,
) -> Tensor:
    """Return the output of the layer, `[batch, seq_len, out_dim]`, in the dtype of weights and inputs.

    Args:
        weights: the layer.
        inputs: what query, key and value are made from, `[batch, length, d_model]` each.
        mask: as in `headwise.attention`.
        bias: as in `headwise.attention`.
        scale: as in `headwise.attention`.
        rope: rotary positions of the layer; None for none. Its pairing is set aside: weights are half-split.

    """
    query = _projected(inputs[0], weights.query, weights.query_bias)
    key = _projected(inputs[1], weights.key, weights.key_bias)
    value = _projected(inputs[2], weights.value, weights.value_bias)
    if rope is not None:
        query, key = replace(rope, pairing="half_split").rotate(query, key)
    mixed = attention(query, key, value, mask=mask, bias=bias, scale=scale)
    output = torch.einsum("bhsw,hwo->bso", mixed, weights.out)
    return output if weights.out_bias is None else output + weights.out_bias


def _projected(given: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    # [batch, length, in] by [heads, width, in] -> [batch, heads, length, width]
    projected = torch.einsum("bsi,hwi->bhsw", given, weight)
    return projected if bias is None else projected + bias[:, None]
