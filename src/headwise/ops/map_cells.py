"""Which cell of a pooled map a row or a key falls into."""

from __future__ import annotations

import torch
from torch import Tensor


def cells_of(length: int, size: int, device: torch.device) -> Tensor:
    """Return the cell of each of `length` places, at most `size` cells of nearly equal width."""
    return torch.arange(length, device=device) * min(size, length) // max(1, length)
