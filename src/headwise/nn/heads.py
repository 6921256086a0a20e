"""Between the width of a layer and its heads."""

from __future__ import annotations

from torch import Tensor, nn


def split(projected: Tensor, count: int) -> Tensor:
    """Return `[batch, length, count * width]` as `[batch, count, length, width]`."""
    batch, length, width = projected.shape
    return projected.reshape(batch, length, count, width // count).transpose(1, 2)


def joined(heads: Tensor) -> Tensor:
    """Return `[batch, count, length, width]` as `[batch, length, count * width]`."""
    return heads.transpose(1, 2).flatten(2)


def normed(heads: Tensor, norm: nn.RMSNorm | None) -> Tensor:
    """Return each vector of each head normed, in its dtype, or as it is where there is no norm."""
    if norm is None:
        return heads
    normed_heads: Tensor = norm(heads.to(norm.weight.dtype))  # under autocast the two differ
    return normed_heads.to(heads.dtype)
