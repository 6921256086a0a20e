"""The masks that are one interval of visible keys per row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from headwise.counts import checked_size
from headwise.errors import ArgumentError
from headwise.masks.mask import Mask
from headwise.masks.shapes import check_choice, checked_counts

Align = Literal["lower_right", "upper_left"]
Padding = Literal["right", "left"]


@dataclass(frozen=True)
class Intervals:
    """The visible keys of each row, `start <= j < stop`; both int64 `[batch or 1, seq_len]`."""

    start: NDArray[np.int64]
    stop: NDArray[np.int64]

    def __and__(self, other: Intervals) -> Intervals:
        """Return the keys that both see."""
        return Intervals(np.maximum(self.start, other.start), np.minimum(self.stop, other.stop))

    def clipped(self, kv_len: int) -> Intervals:
        """Return the same visible keys with every number within `0 .. kv_len` and `start <= stop`."""
        start = self.start.clip(0, kv_len)
        return Intervals(start, np.maximum(start, self.stop.clip(0, kv_len)))

    def visible(self, kv_len: int) -> NDArray[np.bool_]:
        """Return the boolean `[batch or 1, seq_len, kv_len]` that the intervals stand for."""
        keys = np.arange(kv_len)
        return (keys >= self.start[..., None]) & (keys < self.stop[..., None])


class StructuredMask(Mask, ABC):
    """A mask that is one interval of keys per row."""

    @abstractmethod
    def intervals(self, batch: int, seq_len: int, kv_len: int) -> Intervals:
        """Return the visible keys of each row; the numbers may lie outside `0 .. kv_len`."""


class MaskValue(StructuredMask):
    """A structured mask that is a value: it cannot change, and equal ones mean the same."""

    @property
    def is_value(self) -> bool:
        """It is."""
        return True


def _own_positions(align: Align, seq_len: int, kv_len: int) -> NDArray[np.int64]:
    """Return the key position at which each query stands, `[1, seq_len]`."""
    offset = kv_len - seq_len if align == "lower_right" else 0
    return np.arange(seq_len, dtype=np.int64)[None] + offset


@dataclass(frozen=True)
class Causal(MaskValue):
    """Each query sees its own position and everything before it.

    Args:
        align: where the queries stand when seq_len differs from kv_len; `headwise.masks` has a drawing.

    Example:
        >>> Causal().intervals(1, 2, 5).stop
        array([[4, 5]])

    """

    align: Align = "lower_right"
    follows_diagonal: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_choice("align", self.align, Align)

    def intervals(self, batch: int, seq_len: int, kv_len: int) -> Intervals:
        """Return `0 <= j <= position`."""
        own = _own_positions(self.align, seq_len, kv_len)
        return Intervals(np.zeros_like(own), own + 1)


@dataclass(frozen=True)
class Window(MaskValue):
    """Each query sees `left` neighbours before its position, itself, and `right` neighbours after it.

    Args:
        left, right: neighbours on that side, the query's own position excluded; None means all of them.
        align: where the queries stand when seq_len differs from kv_len.

    Example:
        >>> Window(left=1, right=0).intervals(1, 3, 3).start
        array([[-1,  0,  1]])

    """

    left: int | None = None
    right: int | None = None
    align: Align = "lower_right"
    follows_diagonal: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_choice("align", self.align, Align)
        for side in ("left", "right"):
            count = getattr(self, side)
            if count is not None:
                checked_size(f"Window {side}", count, at_least=0, largest=None)

    @classmethod
    def of(cls, size: int) -> Window:
        """Return the causal window of `size` keys including the query's own, as `sliding_window` counts."""
        checked_size("Window.of size", size, largest=None)
        return cls(left=size - 1, right=0)

    def intervals(self, batch: int, seq_len: int, kv_len: int) -> Intervals:
        """Return `position - left <= j <= position + right`."""
        own = _own_positions(self.align, seq_len, kv_len)
        everything = seq_len + kv_len  # more neighbours than this there cannot be; 64 bits hold it
        start = np.zeros_like(own) if self.left is None else own - min(self.left, everything)
        stop = np.full_like(own, kv_len) if self.right is None else own + min(self.right, everything) + 1
        return Intervals(start, stop)


@dataclass(frozen=True)
class Lengths(MaskValue):
    """Padded keys are hidden: batch element b has `lengths[b]` real keys.

    Args:
        lengths: real keys of each batch element, one integer each.
        padding: the side on which the padding stands.

    Example:
        >>> Lengths([2, 3]).intervals(2, 1, 4).stop.ravel()
        array([2, 3])

    """

    lengths: Sequence[int]
    padding: Padding = "right"

    def __post_init__(self) -> None:
        check_choice("padding", self.padding, Padding)
        object.__setattr__(self, "lengths", checked_counts("lengths", self.lengths))

    def intervals(self, batch: int, seq_len: int, kv_len: int) -> Intervals:
        """Return `j < length`, or `j >= kv_len - length` with the padding on the left."""
        real = per_batch("lengths", self.lengths, batch, kv_len)
        rows = np.broadcast_to(real[:, None], (batch, seq_len))
        if self.padding == "right":
            return Intervals(np.zeros_like(rows), rows)
        return Intervals(kv_len - rows, np.full_like(rows, kv_len))


@dataclass(frozen=True)
class Packed(MaskValue):
    """Several documents stand one after the other in a row; each query sees its own document only.

    Args:
        lengths: queries of each document, the same for every batch element. Rows past the last document are
            padding and see nothing.
        key_lengths: keys of each document, where they differ from the queries (cross-attention). Left out,
            every document has as many keys as queries, and seq_len and kv_len must be equal.

    Example:
        >>> Packed([2, 1]).intervals(1, 3, 3).start
        array([[0, 0, 2]])

    """

    lengths: Sequence[int]
    key_lengths: Sequence[int] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengths", checked_counts("lengths", self.lengths))
        if self.key_lengths is not None:
            object.__setattr__(self, "key_lengths", checked_counts("key_lengths", self.key_lengths))
            if len(self.key_lengths) != len(self.lengths):
                raise ArgumentError(
                    f"Packed has {len(self.lengths)} lengths and {len(self.key_lengths)} key_lengths; "
                    "give one of each per document"
                )

    @property
    def lacks_diagonal(self) -> bool:
        """With `key_lengths`, each document is a rectangle of its own."""
        return self.key_lengths is not None

    def intervals(self, batch: int, seq_len: int, kv_len: int) -> Intervals:
        """Return the keys of each row's own document."""
        if self.key_lengths is None and seq_len != kv_len:
            raise ArgumentError(
                f"Packed without key_lengths needs as many keys as queries, but seq_len={seq_len} and "
                f"kv_len={kv_len}; give key_lengths, one for each document"
            )
        key_lengths = self.lengths if self.key_lengths is None else self.key_lengths
        for name, lengths, size, of in (
            ("lengths", self.lengths, seq_len, "seq_len"),
            ("key_lengths", key_lengths, kv_len, "kv_len"),
        ):
            if sum(lengths) > size:
                raise ArgumentError(
                    f"Packed {name} sum to {sum(lengths)}, more than {of}={size}; "
                    "they must sum to it, or to less with padding behind"
                )
        ends = np.cumsum(key_lengths, dtype=np.int64)
        padding = np.zeros(seq_len - sum(self.lengths), dtype=np.int64)
        stop = np.concatenate([np.repeat(ends, self.lengths), padding])
        start = np.concatenate([np.repeat(ends - np.asarray(key_lengths), self.lengths), padding])
        return Intervals(start[None], stop[None])


@dataclass(frozen=True)
class Prefix(MaskValue):
    """The first `lengths` keys are seen by every query, the rest in causal order (prefix language model).

    Args:
        lengths: keys in the prefix: one integer for all, or one for each batch element.
        align: where the queries stand when seq_len differs from kv_len.

    Example:
        >>> Prefix(2).intervals(1, 3, 3).stop
        array([[2, 2, 3]])

    """

    lengths: int | Sequence[int]
    align: Align = "lower_right"
    follows_diagonal: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_choice("align", self.align, Align)
        if isinstance(self.lengths, Iterable):
            object.__setattr__(self, "lengths", checked_counts("lengths", self.lengths))
        else:
            object.__setattr__(self, "lengths", checked_size("Prefix lengths", self.lengths, at_least=0))

    def intervals(self, batch: int, seq_len: int, kv_len: int) -> Intervals:
        """Return `j <= position` or `j < prefix`, whichever reaches further."""
        lengths = (self.lengths,) * batch if isinstance(self.lengths, int) else self.lengths
        prefix = per_batch("lengths", lengths, batch, kv_len)[:, None]
        stop = np.maximum(_own_positions(self.align, seq_len, kv_len) + 1, prefix)
        return Intervals(np.zeros_like(stop), stop)


def per_batch(name: str, counts: Sequence[int], batch: int, kv_len: int) -> NDArray[np.int64]:
    """Return `counts`, called `name` in messages, as an array: one for each batch element, at most kv_len."""
    if len(counts) != batch:
        raise ArgumentError(
            f"{name} has {len(counts)} entries, but batch is {batch}; give one for each batch element"
        )
    if counts and max(counts) > kv_len:
        raise ArgumentError(f"{name} has an entry of {max(counts)}, but there are only kv_len={kv_len} keys")
    return np.asarray(counts, dtype=np.int64)
