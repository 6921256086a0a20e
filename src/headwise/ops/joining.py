"""Putting what blocks of rows give together."""

from __future__ import annotations

import torch
from torch import Tensor


class JoinedRows:
    """Joins the parts `[batch, num_heads, rows, ...]` of consecutive blocks along their rows.

    Without autograd each part is copied into one tensor at once. Kept as they are, many small parts would lie
    between the large tensors that each block frees, and keep the allocator from giving these back: observing
    24,000 tokens took 12.7 GB that way.
    """

    def __init__(self, seq_len: int) -> None:
        self._seq_len = seq_len
        self._parts: list[Tensor] = []
        self._joined: Tensor | None = None

    def add(self, rows: slice, part: Tensor) -> None:
        """Take in the part of the queries `rows`."""
        if part.requires_grad:
            self._parts.append(part)
            return
        if self._joined is None:
            self._joined = part.new_empty((*part.shape[:2], self._seq_len, *part.shape[3:]))
        self._joined[:, :, rows] = part

    def whole(self) -> Tensor:
        """Return all rows; at least one part must have been taken in."""
        return torch.cat(self._parts, dim=2) if self._joined is None else self._joined
