"""What to record about each head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwise.counts import checked_size
from headwise.evidence import checks


@dataclass(frozen=True)
class Collect:
    """What to record about each head besides its output.

    The statistics of `STATISTICS` and `OTHER_STATISTICS` are always recorded. Everything else is asked for,
    since it costs memory. Sequences are kept as tuples.

    Args:
        weights: keep the exact weights, `[batch, num_heads, seq_len, kv_len]`; memory grows with
            seq_len x kv_len.
        map_size: keep a map of at most `map_size x map_size` cells per head, pooled so that each row still
            sums to what its rows summed to: the mean over a cell's rows of the mass on its keys.
        top_k: keep the `top_k` largest weights of each row and their keys.
        offsets: distances, in tokens, at which to keep the weight of each row: 0 is the query's own key, 1
            the one before.
        rows: query rows whose exact weights to keep; negative ones count from the last row, which is -1.
        received: keep the mass that each key receives.
        heads: query heads to report, in the order in which to report them; None for all.
        pairs: pairs of query heads whose rows to compare, whatever `heads` reports.
        local_window: how far, in tokens, a key may be from the query to count as local.

    Raises:
        ArgumentError: a count, offset, row, head or pair is not one that can be, or is named twice.

    Example:
        >>> wanted = Collect(top_k=8, offsets=[0, 1], rows=[-1], pairs=[(0, 3)])
        >>> wanted.offsets, wanted.rows, wanted.pairs
        ((0, 1), (-1,), ((0, 3),))

    """

    weights: bool = False
    map_size: int | None = None
    top_k: int | None = None
    offsets: Sequence[int] = ()
    rows: Sequence[int] = ()
    received: bool = False
    heads: Sequence[int] | None = None
    pairs: Sequence[tuple[int, int]] = ()
    local_window: int = 8

    def __post_init__(self) -> None:
        for name in ("weights", "received"):
            checks.check_switch(name, getattr(self, name))
        for name in ("map_size", "top_k"):
            if getattr(self, name) is not None:
                self._keep(name, checked_size(name, getattr(self, name)))
        self._keep("local_window", checked_size("local_window", self.local_window, at_least=0))
        self._keep("offsets", checks.checked_offsets(self.offsets))
        self._keep("rows", checks.checked_rows(self.rows))
        if self.heads is not None:
            self._keep("heads", checks.checked_heads(self.heads))
        self._keep("pairs", checks.checked_pairs(self.pairs))

    def heads_of(self, num_heads: int) -> tuple[int, ...]:
        """Return the query heads to report of a layer of `num_heads`, in order.

        Raises:
            ArgumentError: the layer has no such head.

        Example:
            >>> Collect(heads=[3, 0]).heads_of(4), Collect().heads_of(4)
            ((3, 0), (0, 1, 2, 3))

        """
        if self.heads is None:
            return tuple(range(num_heads))
        checks.check_heads_exist("heads", self.heads, num_heads)
        return tuple(self.heads)

    def pairs_of(self, num_heads: int) -> tuple[tuple[int, int], ...]:
        """Return the pairs of query heads to compare in a layer of `num_heads`.

        Raises:
            ArgumentError: the layer has no such head.

        Example:
            >>> Collect(pairs=[(0, 3)]).pairs_of(4)
            ((0, 3),)

        """
        for place, pair in enumerate(self.pairs):
            checks.check_heads_exist(f"pairs[{place}]", pair, num_heads)
        return tuple(self.pairs)

    def rows_of(self, seq_len: int) -> tuple[int, ...]:
        """Return the rows to keep of a call of `seq_len` queries, counted from the first.

        Raises:
            ArgumentError: the call has no such row, or two of them are the same one.

        Example:
            >>> Collect(rows=[2, -1]).rows_of(5)
            (2, 4)

        """
        return checks.counted_rows(self.rows, seq_len)

    def _keep(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)
