"""Matrix products of grouped heads, in which no key or value is ever repeated.

The query heads that read one KV head are stacked on top of each other: one product serves them all.
"""

from __future__ import annotations

from torch import Tensor


def grouped_product(left: Tensor, right: Tensor) -> Tensor:
    """Return `left[:, h] @ right[:, h // group_size]` for every head h of left.

    left `[batch, num_heads, m, n]`, right `[batch, num_kv_heads, n, p]`; returns `[batch, num_heads, m, p]`.
    """
    product = _stacked(left, right.shape[1]) @ right
    return product.reshape(*left.shape[:3], right.shape[3])


def grouped_outer(left: Tensor, right: Tensor, num_kv_heads: int) -> Tensor:
    """Return the sum of `left[:, h].T @ right[:, h]` over the heads h of each KV head.

    left `[batch, num_heads, m, n]`, right `[batch, num_heads, m, p]`; returns `[batch, num_kv_heads, n, p]`.
    """
    return _stacked(left, num_kv_heads).mT @ _stacked(right, num_kv_heads)


def _stacked(tensor: Tensor, num_kv_heads: int) -> Tensor:
    batch, num_heads, rows, width = tensor.shape
    # [batch, num_heads, rows, width] -> [batch, num_kv_heads, group_size * rows, width]
    return tensor.reshape(batch, num_kv_heads, num_heads // num_kv_heads * rows, width)
