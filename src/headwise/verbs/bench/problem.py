"""The tensors of a work, what its mask means row by row, and what of it is useful."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headwise import masks
from headwise.verbs.bench.works import Work

SEED = 3


@dataclass(frozen=True)
class Problem:
    """A work with its tensors, in the layout of `headwise.attention`, and each row's visible keys."""

    work: Work
    query: Tensor
    key: Tensor
    value: Tensor
    mask: masks.Mask | None
    intervals: masks.Intervals

    @property
    def visible_pairs(self) -> int:
        """How many pairs of query and key are visible, over all query heads and the batch."""
        rows = self.intervals.stop - self.intervals.start
        repeated = self.work.batch // rows.shape[0]
        return int(rows.sum()) * repeated * self.work.num_heads

    @property
    def useful_flops(self) -> int:
        """FLOPs of scores and weighted sum over visible keys alone; a multiply-add is two."""
        return 4 * self.visible_pairs * self.work.head_dim

    @property
    def kv_bytes(self) -> int:
        """Bytes of the keys and values that some row sees, each read once."""
        seen = self.intervals.stop.max(axis=1) - self.intervals.start.min(axis=1)
        tokens = int(seen.sum()) * (self.work.batch // seen.shape[0])
        return 2 * tokens * self.work.num_kv_heads * self.work.head_dim * self.key.element_size()

    def visible(self) -> Tensor:
        """Return the mask, boolean `[batch or 1, seq_len or 1, kv_len]`; 1 where all queries see the same."""
        rows = slice(0, 1) if self.work.lengths is not None else slice(None)
        seen = masks.Intervals(self.intervals.start[:, rows], self.intervals.stop[:, rows])
        return torch.from_numpy(seen.visible(self.work.kv_len))

    @property
    def score_bytes(self) -> int:
        """Bytes of one float32 for every pair of query and key, visible or not."""
        work = self.work
        return 4 * work.batch * work.num_heads * work.seq_len * work.kv_len


def make_problem(work: Work) -> Problem:
    """Return the work with tensors of normally distributed numbers, the same every time."""
    random = torch.Generator().manual_seed(SEED)
    dtype = getattr(torch, work.dtype)

    def tensor(heads: int, length: int) -> Tensor:
        return torch.randn(work.batch, heads, length, work.head_dim, generator=random).to(dtype)

    mask = mask_of(work)
    sizes = masks.Sizes(work.batch, work.num_heads, work.seq_len, work.kv_len)
    return Problem(
        work=work,
        query=tensor(work.num_heads, work.seq_len),
        key=tensor(work.num_kv_heads, work.kv_len),
        value=tensor(work.num_kv_heads, work.kv_len),
        mask=mask,
        intervals=masks.resolve(mask, sizes).intervals,
    )


def mask_of(work: Work) -> masks.Mask | None:
    """Return the work's mask as headwise knows it, or None if every query sees every key."""
    if work.window is not None:
        return masks.Window.of(work.window)
    if work.lengths is not None:
        return masks.Lengths(work.lengths)
    return masks.Causal() if work.causal else None
