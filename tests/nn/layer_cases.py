"""Layers to try, and the same by other means: the sum over heads by the reference, and naive torch code."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headwise import reference
from headwise.nn import MultiHeadAttention

BATCH, SEQ_LEN, KV_LEN, D_MODEL = 2, 5, 7, 12
LAYOUTS: dict[str, dict[str, Any]] = {
    "MHA": {"num_heads": 3},
    "GQA": {"num_heads": 6, "num_kv_heads": 2},
    "MQA": {"num_heads": 4, "num_kv_heads": 1},
    "own widths": {"num_heads": 6, "num_kv_heads": 3, "head_dim": 5, "value_head_dim": 7},
    "no bias": {"num_heads": 3, "bias": False},
}


def made(layout: dict[str, Any], **more: Any) -> MultiHeadAttention:
    layer = MultiHeadAttention(D_MODEL, **layout, **more)
    for parameter in layer.parameters():  # biases start at 0, where they could be forgotten unseen
        nn.init.normal_(parameter, std=0.5)
    return layer


def sum_over_heads(layer: MultiHeadAttention, query: Tensor, key: Tensor, value: Tensor, mask: Any) -> Tensor:
    """Return `sum over heads of softmax(..) V W_O[head]`, plus the bias, by the reference's weights."""

    def projected(projection: nn.Linear, given: Tensor, heads: int) -> np.ndarray:
        weight = projection.weight.detach().double().numpy()
        flat = given.detach().double().numpy() @ weight.T
        if projection.bias is not None:
            flat = flat + projection.bias.detach().double().numpy()
        return np.stack(np.split(flat, heads, axis=2), axis=1)

    layout = layer.layout
    values = projected(layer.v_proj, value, layout.num_kv_heads)
    weights = reference.attention(
        projected(layer.q_proj, query, layout.num_heads),
        projected(layer.k_proj, key, layout.num_kv_heads),
        values,
        mask=mask,
    ).weights
    mixing = layer.out_proj.weight.detach().double().numpy().T.reshape(layout.num_heads, -1, D_MODEL)
    heads = range(layout.num_heads)
    total = sum(weights[:, head] @ values[:, layout.kv_head_of(head)] @ mixing[head] for head in heads)
    if layer.out_proj.bias is not None:
        total = total + layer.out_proj.bias.detach().double().numpy()
    return torch.from_numpy(np.asarray(total))


def naive(layer: MultiHeadAttention, query: Tensor, key: Tensor, value: Tensor, visible: Tensor) -> Tensor:
    """Return the layer's output by plain torch operations, for autograd to differentiate."""
    layout = layer.layout

    def split(projected: Tensor, heads: int) -> Tensor:
        repeats = layout.num_heads // heads
        return projected.unflatten(2, (heads, -1)).transpose(1, 2).repeat_interleave(repeats, dim=1)

    scores = split(layer.q_proj(query), layout.num_heads) @ split(layer.k_proj(key), layout.num_kv_heads).mT
    weights = torch.softmax((scores / layout.head_dim**0.5).masked_fill(~visible, -torch.inf), -1)
    mixed = weights @ split(layer.v_proj(value), layout.num_kv_heads)
    return layer.out_proj(mixed.transpose(1, 2).flatten(2))
