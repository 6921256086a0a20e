"""What every cache of one layer does: it stores new keys and values behind the old ones, in unequal rows.

A buffer is allocated ahead, `[batch, num_kv_heads, capacity, width]`, and `key` and `value` are views of its
filled part. Each row (batch element) fills places 0, 1, 2 and so on by itself; what lies behind its last key
may be anything, and the mask hides it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from headwise.cache.arguments import check_new, check_same_kind, checked_lengths, checked_rows
from headwise.cache.buffers import unwritten
from headwise.counts import checked_size
from headwise.errors import ArgumentError
from headwise.masks import Causal, CausalFrom, Mask, Window
from headwise.masks.shapes import checked_counts

Item = TypeVar("Item")

FEWEST_PLACES = 256
"""The smallest capacity: below it, growing would cost more than the room."""


class Row(NamedTuple):
    """Where one batch element stands.

    - length: the tokens appended to it, less those taken back
    - new: how many of them came with the last append
    - dropped: how many are no longer held; they stood behind the places whose keys stay for good
    """

    length: int = 0
    new: int = 0
    dropped: int = 0

    @property
    def filled(self) -> int:
        """The places of the buffer that its keys fill."""
        return self.length - self.dropped


class LayerCache(ABC):
    """The keys and values of one layer."""

    _pinned_places = 0
    """How many places at the front never move."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything and release the memory; the cache is as newly made."""
        self._buffers: tuple[Tensor, Tensor] | None = None
        self._rows: tuple[Row, ...] = ()
        self._new_len = 0

    @property
    def key(self) -> Tensor:
        """The keys held, `[batch, num_kv_heads, kv_len, head_dim]`: a view, good until the next append."""
        return self._held()[0][:, :, : self._filled]

    @property
    def value(self) -> Tensor:
        """The values held, `[batch, num_kv_heads, kv_len, value_head_dim]`: a view like `key`."""
        return self._held()[1][:, :, : self._filled]

    @property
    def lengths(self) -> tuple[int, ...]:
        """The tokens of each row so far, those that are no longer held included; the next one's position."""
        return tuple(row.length for row in self._rows)

    @property
    def length(self) -> int:
        """The tokens of the longest row."""
        return max(self.lengths, default=0)

    @property
    def capacity(self) -> int:
        """The keys per row for which there is room now."""
        return 0 if self._buffers is None else self._buffers[0].shape[2]

    @property
    def nbytes(self) -> int:
        """The bytes of the whole buffer, room ahead included."""
        return sum(buffer.nbytes for buffer in self._buffers or ())

    def append(self, key: Tensor, value: Tensor, *, lengths: Sequence[int] | Tensor | None = None) -> None:
        """Store new keys and values behind those of each row.

        Args:
            key: `[batch, num_kv_heads, new tokens, head_dim]`, any strides; it is copied.
            value: `[batch, num_kv_heads, new tokens, value_head_dim]`.
            lengths: how many of the new tokens of each row are real; padding stands behind them and is not
                stored. All by default.

        Raises:
            ArgumentError: shapes, dtypes or devices differ from each other or from what the cache holds, a
                tensor requires a gradient, or `lengths` does not fit.

        """
        check_new(key, value)
        if self._buffers is not None:
            for name, new, held in zip(("key", "value"), (key, value), self._buffers, strict=True):
                check_same_kind(name, new, held)
        batch, _, new_len, _ = key.shape
        counts = checked_lengths(lengths, batch, new_len)
        if self._buffers is None:
            self._buffers = _with_places(key, 0), _with_places(value, 0)
            self._rows = (Row(),) * batch
        self._make_room(counts)
        for rows, (row, count) in alike(list(zip(self._rows, counts, strict=True))):
            for buffer, new in zip(self._buffers, (key, value), strict=True):
                buffer[rows, :, row.filled : row.filled + count] = new[rows, :, :count]
        self._rows = tuple(
            Row(row.length + count, count, row.dropped) for row, count in zip(self._rows, counts, strict=True)
        )
        self._new_len = new_len

    def reorder(self, indices: Sequence[int] | Tensor) -> None:
        """Make row `indices[b]` the new row b, as a beam search does; rows may repeat or vanish.

        Args:
            indices: one row for each row there is to be.

        Raises:
            ArgumentError: a row does not exist, or the cache is empty.

        """
        key, value = self._held()
        kept = checked_rows(indices, len(self._rows))
        index = torch.tensor(kept, dtype=torch.long, device=key.device)
        with torch.inference_mode(False):
            self._buffers = key.index_select(0, index), value.index_select(0, index)
        self._rows = tuple(self._rows[row] for row in kept)

    def crop(self, length: int | Sequence[int] | Tensor) -> None:
        """Take back the last tokens, as speculative decoding does: each row keeps its first `length`.

        Args:
            length: tokens to keep, one number for all rows or one for each.

        Raises:
            ArgumentError: a row has fewer tokens, or cannot go back so far, or the cache is empty.

        """
        self._held()
        if isinstance(length, Iterable):
            lengths = checked_counts("length", length)
        else:
            lengths = (checked_size("length", length, at_least=0),) * len(self._rows)
        if len(lengths) != len(self._rows):
            raise ArgumentError(
                f"length has {len(lengths)} entries, but batch is {len(self._rows)}; give one for each batch "
                "element, or one number for all"
            )
        for b, (row, kept) in enumerate(zip(self._rows, lengths, strict=True)):
            if not self._fewest_kept(row) <= kept <= row.length:
                raise ArgumentError(
                    f"crop to length {kept}, but row {b} can keep {self._fewest_kept(row)} to {row.length} "
                    "tokens; give one length for each row where they differ (a rolling cache takes back "
                    "tokens of its last append only)"
                )
        self._rows = tuple(
            Row(kept, max(0, row.new - (row.length - kept)), row.dropped)
            for row, kept in zip(self._rows, lengths, strict=True)
        )
        self._new_len = max((row.new for row in self._rows), default=0)

    @abstractmethod
    def _make_room(self, counts: tuple[int, ...]) -> None:
        """See to it that each row has room for that many more keys."""

    @abstractmethod
    def _fewest_kept(self, row: Row) -> int:
        """Return the length to which the row can be cropped."""

    def _held(self) -> tuple[Tensor, Tensor]:
        if self._buffers is None:
            raise ArgumentError("the cache is empty; append(key, value) comes first")
        return self._buffers

    @property
    def _filled(self) -> int:
        return max((row.filled for row in self._rows), default=0)

    def _queries(self, seq_len: int) -> tuple[int, ...]:
        """Return how many of `seq_len` queries are real in each row: its last new tokens, padding behind."""
        self._held()
        if checked_size("seq_len", seq_len, at_least=0) > self._new_len:
            raise ArgumentError(
                f"mask of seq_len={seq_len} queries, but {self._new_len} tokens are new; queries are the "
                "last tokens appended: append their keys and values first"
            )
        return tuple(min(seq_len, row.new) for row in self._rows)

    def _causal(self, seq_len: int, window: int | None) -> Mask:
        """Return causal order over the places of the buffer."""
        counts = self._queries(seq_len)
        if len(set(self._rows)) <= 1 and all(count == seq_len for count in counts):
            return Causal() if window is None else Window.of(window)
        first = [row.filled - count for row, count in zip(self._rows, counts, strict=True)]
        return CausalFrom(first, counts, window)

    def _rehouse(self, rows: tuple[Row, ...], capacity: int) -> None:
        """Move the keys to where `rows`, which drop more keys, have them, in buffers of that capacity."""
        old = self._held()
        in_place = capacity == self.capacity
        new = old if in_place else (_with_places(old[0], capacity), _with_places(old[1], capacity))
        for where, (before, after) in alike(list(zip(self._rows, rows, strict=True))):
            if in_place and before == after:
                continue
            pinned = min(self._pinned_places, after.filled)
            first_moving = pinned + after.dropped - before.dropped
            for source, target in zip(old, new, strict=True):
                moving = source[where, :, first_moving : before.filled]
                # Within one buffer, where they come from and where they go may overlap.
                target[where, :, pinned : after.filled] = moving.clone() if in_place else moving
                if not in_place:
                    target[where, :, :pinned] = source[where, :, :pinned]
        self._buffers, self._rows = new, rows


def alike(items: Sequence[Item]) -> Iterator[tuple[slice, Item]]:
    """Yield rows and what they have in common: all rows at once if they are equal, else one by one."""
    if len(set(items)) == 1:
        yield slice(None), items[0]
    else:
        for b, item in enumerate(items):
            yield slice(b, b + 1), item


def places_for(count: int) -> int:
    """Return the capacity that holds `count` keys: the next power of two, so that growing is rare."""
    return max(FEWEST_PLACES, 1 << (count - 1).bit_length())


def _with_places(like: Tensor, capacity: int) -> Tensor:
    """Return an unwritten buffer of that capacity."""
    batch, heads, _, width = like.shape
    # A buffer made in inference mode could not be written to outside.
    with torch.inference_mode(False):
        return unwritten((batch, heads, capacity, width), like)
