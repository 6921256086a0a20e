"""Causal order where every batch element has a length of its own, as behind a cache of ragged rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from headwise.counts import checked_size
from headwise.errors import ArgumentError
from headwise.masks.shapes import checked_counts
from headwise.masks.structured import Intervals, MaskValue, per_batch


@dataclass(frozen=True)
class CausalFrom(MaskValue):
    """Causal order in which the queries of each batch element start at a key position of their own.

    Query i of batch element b stands at key `first[b] + i`; it sees that key and those before it. `Causal`
    says the same where all batch elements are equally long. `Window` knows one position for all batch
    elements, so give a window here rather than with `&`.

    Args:
        first: key position of the first query, one for each batch element.
        counts: real queries of each batch element; those behind them are padding and see nothing. By default
            all are real.
        window: the keys a query sees at most, its own included, as `Window.of` counts; None means all.

    Raises:
        ArgumentError: a count is negative or no integer, or first and counts differ in length.

    Example:
        >>> CausalFrom([3, 1], counts=[2, 1]).intervals(2, 2, 5).stop  # 0: padding, which sees nothing
        array([[4, 5],
               [2, 0]])

    """

    first: Sequence[int]
    counts: Sequence[int] | None = None
    window: int | None = None
    follows_diagonal: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "first", checked_counts("first", self.first))
        if self.window is not None:
            checked_size("CausalFrom window", self.window, largest=None)
        if self.counts is not None:
            object.__setattr__(self, "counts", checked_counts("counts", self.counts))
            if len(self.counts) != len(self.first):
                raise ArgumentError(
                    f"CausalFrom has {len(self.first)} entries in first and {len(self.counts)} in counts; "
                    "give one of each for each batch element"
                )

    def intervals(self, batch: int, seq_len: int, kv_len: int) -> Intervals:
        """Return `position - window < j <= position` for the real queries, nothing for the others."""
        first = per_batch("first", self.first, batch, kv_len)[:, None]
        counts = (
            np.full_like(first, seq_len) if self.counts is None else np.asarray([self.counts], np.int64).T
        )
        self._check_fit(first, counts, seq_len, kv_len)
        query = np.arange(seq_len, dtype=np.int64)
        stop = np.where(query < counts, first + query + 1, 0)
        everything = seq_len + kv_len  # more keys than this there cannot be; 64 bits hold it
        start = np.zeros_like(stop) if self.window is None else stop - min(self.window, everything)
        return Intervals(start, stop)

    def _check_fit(
        self, first: NDArray[np.int64], counts: NDArray[np.int64], seq_len: int, kv_len: int
    ) -> None:
        if counts.max(initial=0) > seq_len:
            raise ArgumentError(
                f"counts has an entry of {counts.max()}, but there are only seq_len={seq_len} queries"
            )
        beyond = np.flatnonzero((counts > 0) & (first + counts > kv_len))
        if beyond.size:
            b = int(beyond[0])
            raise ArgumentError(
                f"CausalFrom has {counts[b, 0]} queries of batch element {b} from key {first[b, 0]} on, but "
                f"there are only kv_len={kv_len} keys; each query stands at a key: append the new keys first"
            )
