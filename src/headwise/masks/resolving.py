"""What a mask means on a problem of given sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headwise.masks.mask import Dense, as_mask
from headwise.masks.shapes import Sizes
from headwise.masks.structured import Intervals, StructuredMask


@dataclass(frozen=True)
class ResolvedMask:
    """A mask on given sizes: one interval per row and the dense parts.

    The intervals lie within `0 .. kv_len`, and `start <= stop`.
    """

    intervals: Intervals
    dense: tuple[Dense, ...]


def resolve(mask: Any, sizes: Sizes) -> ResolvedMask:
    """Return what `mask` (a mask object, a tensor, or None for no mask) means on a problem of these sizes.

    Raises:
        ArgumentError: `mask` is no mask, or does not fit the sizes.

    Example:
        >>> from headwise.masks import Causal, Window
        >>> resolve(Causal() & Window(left=1), Sizes(batch=1, num_heads=1, seq_len=2, kv_len=5)).intervals
        Intervals(start=array([[2, 3]]), stop=array([[4, 5]]))

    """
    rows = (1, sizes.seq_len)
    intervals = Intervals(np.zeros(rows, np.int64), np.full(rows, sizes.kv_len, np.int64))
    dense = []
    for part in () if mask is None else as_mask(mask).parts:
        if isinstance(part, StructuredMask):
            intervals = intervals & part.intervals(sizes.batch, sizes.seq_len, sizes.kv_len)
        elif isinstance(part, Dense):
            part.broadcast_shape(sizes)
            dense.append(part)
    return ResolvedMask(intervals.clipped(sizes.kv_len), tuple(dense))
