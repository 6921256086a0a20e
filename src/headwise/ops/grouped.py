"""The matrix product of grouped heads."""

from __future__ import annotations

from torch import Tensor


def grouped_product(left: Tensor, right: Tensor) -> Tensor:
    """Return `left[:, h] @ right[:, h // group_size]` for every head h of left, repeating nothing.

    left `[batch, num_heads, m, n]`, right `[batch, num_kv_heads, n, p]`, returns `[batch, num_heads, m, p]`.
    """
    batch, num_heads, rows, width = left.shape
    num_kv_heads = right.shape[1]
    # [batch, num_heads, m, n] -> [batch, num_kv_heads, group_size * m, n]
    stacked = left.reshape(batch, num_kv_heads, num_heads // num_kv_heads * rows, width)
    return (stacked @ right).reshape(batch, num_heads, rows, right.shape[3])
