"""The cache that keeps the first tokens and a window of the last ones, whatever the length."""

from __future__ import annotations

import torch

from headwise.cache.layer_cache import LayerCache, Row, places_for
from headwise.counts import checked_size
from headwise.kernels.geometry import TILE
from headwise.masks import Dense, Mask


class RollingKVCache(LayerCache):
    """The keys and values of one layer: the first `keep_first` tokens and the last `window`.

    Query i sees key j if `j <= i` and either `j < keep_first` or `j > i - window`. Memory is that of about
    `keep_first + 9/8 window` and four tiles of 256 keys, however long the text; while a longer piece of text
    is appended at once, its keys are held too.

    The buffer holds the first tokens, whole tiles of them, and behind them the keys from some tile on. When
    it is full, the tiles that no later query sees are dropped and the others move up. So tiles stay whole and
    in order, and a kernel that takes tile after tile gives the bits it gives on all keys under the same mask.

    Args:
        window: the keys a query sees besides the first tokens, its own included.
        keep_first: the first tokens, which every later query sees; 0 for a plain sliding window.

    Raises:
        ArgumentError: `window` is below 1 or `keep_first` below 0, or one is no integer.

    Example:
        >>> import torch
        >>> from headwise import attention
        >>> cache = RollingKVCache(window=512, keep_first=4)
        >>> for _ in range(30):
        ...     piece = torch.randn(1, 3, 100, 64)
        ...     cache.append(piece, piece)
        >>> cache.length, cache.capacity
        (3000, 1280)
        >>> attention(torch.randn(1, 9, 100, 64), cache.key, cache.value, mask=cache.mask(100)).shape
        torch.Size([1, 9, 100, 64])

    Source: Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks", section 3.2;
    positions are not renumbered here.

    """

    def __init__(self, *, window: int, keep_first: int = 0) -> None:
        self.window = checked_size("window", window)
        self.keep_first = checked_size("keep_first", keep_first, at_least=0)
        self._pinned_places = _whole_tiles(self.keep_first)
        # Moving so rarely, a token moves about nine keys at most on average.
        between_moves = max(TILE, self.window // 8)
        self._usual_capacity = self._pinned_places + _whole_tiles(self.window + TILE - 1 + between_moves)
        super().__init__()

    def mask(self, seq_len: int) -> Mask:
        """Return which of the keys held the last appended tokens see.

        Args:
            seq_len: queries of the call. They are the last `seq_len` new tokens of each row; a row with fewer
                new tokens has its queries first, and padding, which sees nothing, behind.

        Raises:
            ArgumentError: fewer tokens than `seq_len` are new, or the cache is empty.

        """
        if not self.keep_first:
            return self._causal(seq_len, self.window)
        counts = self._queries(seq_len)
        rows = list(zip(self._rows, counts, strict=True))
        if len(set(rows)) == 1:
            rows = rows[:1]
        device = self.key.device
        standing = [(row.length, count, row.dropped) for row, count in rows]
        numbers = torch.tensor(standing, dtype=torch.long, device=device).reshape(len(rows), 3, 1, 1)
        length, count, dropped = numbers.unbind(1)
        place = torch.arange(self._filled, device=device)
        query = torch.arange(seq_len, device=device)[:, None]
        position = torch.where(place < self._pinned_places, place, place + dropped)
        own = torch.where(query < count, length - count + query, -1)
        # [batch or 1, seq_len, kv_len]; padding stands before every key
        visible = (position <= own) & ((position < self.keep_first) | (position > own - self.window))
        return Dense(visible, axes="bqk")

    def _make_room(self, counts: tuple[int, ...]) -> None:
        moved = tuple(self._without_unseen(row) for row in self._rows)
        as_is, at_least = (
            max((row.filled + count for row, count in zip(rows, counts, strict=True)), default=0)
            for rows in (self._rows, moved)
        )
        too_large = at_least <= self._usual_capacity < self.capacity
        if as_is <= self.capacity and not too_large:
            return
        if as_is <= self._usual_capacity:
            self._rehouse(self._rows, min(places_for(as_is), self._usual_capacity))
        elif at_least <= self._usual_capacity:
            self._rehouse(moved, self._usual_capacity)
        else:
            self._rehouse(moved, max(self.capacity, _whole_tiles(at_least)))

    def _without_unseen(self, row: Row) -> Row:
        """Return where the row stands once the tiles are dropped that its next token no longer sees."""
        first_seen = row.length - self.window + 1
        unseen = (first_seen - self._pinned_places) // TILE * TILE
        return row._replace(dropped=max(0, unseen))

    def _fewest_kept(self, row: Row) -> int:
        # Every query of the last append still finds its keys, and so do those that take their places.
        return row.length - row.new


def _whole_tiles(count: int) -> int:
    return -(-count // TILE) * TILE
