"""The structured part of a mask as integers, the form in which a torch operator can be given it.

Integers go through `torch.compile` and `torch.export`, where objects do not, and say the same for any sizes:
what each row sees is found out by the operator, which knows how many rows there are. The first integer is how
often the batch of the mask stands behind itself, which it does where `torch.vmap` maps a call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from headwise.masks import (
    Align,
    Causal,
    CausalFrom,
    Intervals,
    Lengths,
    Packed,
    Prefix,
    Sizes,
    StructuredMask,
    Window,
)

_CAUSAL, _WINDOW, _LENGTHS, _PACKED, _PREFIX, _CAUSAL_FROM, _ROWS = range(7)
_NONE = -1
_MANY = 2**62
"""More keys than a tensor has, and a number that torch still holds."""


def encoded(parts: Sequence[StructuredMask], sizes: Sizes) -> list[int]:
    """Return the masks as integers."""
    numbers = [1]
    for part in parts:
        numbers.extend(_encoded(part, sizes))
    return numbers


def repeated(numbers: Sequence[int], count: int) -> list[int]:
    """Return the same masks for a batch that stands `count` times behind itself."""
    return [numbers[0] * count, *numbers[1:]]


def decoded(numbers: Sequence[int]) -> tuple[StructuredMask, ...]:
    """Return the masks that were made these integers."""
    left = iter(numbers)
    times = next(left)
    parts = tuple(_decoded(kind, left) for kind in left)
    return parts if times == 1 else tuple(_Repeated(part, times) for part in parts)


def _encoded(part: StructuredMask, sizes: Sizes) -> list[int]:  # noqa: PLR0911 - one for each kind
    # A class derived from one of these may mean something else, and is asked for its rows.
    if type(part) is Causal:
        return [_CAUSAL, _side(part.align)]
    if type(part) is Window:
        return [_WINDOW, _side(part.align), _count(part.left), _count(part.right)]
    if type(part) is Lengths:
        return [_LENGTHS, int(part.padding == "left"), *_counts(part.lengths)]
    if type(part) is Packed:
        return [_PACKED, *_counts(part.lengths), *_counts(part.key_lengths)]
    if type(part) is Prefix:
        lengths = [_NONE, part.lengths] if isinstance(part.lengths, int) else _counts(part.lengths)
        return [_PREFIX, _side(part.align), *lengths]
    if type(part) is CausalFrom:
        return [_CAUSAL_FROM, _count(part.window), *_counts(part.first), *_counts(part.counts)]
    seen = part.intervals(sizes.batch, sizes.seq_len, sizes.kv_len).clipped(sizes.kv_len)
    return [_ROWS, *seen.start.shape, *seen.start.ravel().tolist(), *seen.stop.ravel().tolist()]


def _decoded(kind: int, left: Iterator[int]) -> StructuredMask:  # noqa: PLR0911 - one for each kind
    """Return a mask of this kind; its fields are the integers that are left."""
    if kind == _CAUSAL:
        return Causal(_align(left))
    if kind == _WINDOW:
        align = _align(left)
        return Window(_maybe(left), _maybe(left), align)
    if kind == _LENGTHS:
        padding = next(left)
        return Lengths(_list(left), "left" if padding else "right")
    if kind == _PACKED:
        return Packed(_list(left), _maybe_list(left))
    if kind == _PREFIX:
        align, lengths = _align(left), _maybe_list(left)
        return Prefix(next(left) if lengths is None else lengths, align)
    if kind == _CAUSAL_FROM:
        window = _maybe(left)
        return CausalFrom(_list(left), _maybe_list(left), window)
    batch, seq_len = next(left), next(left)
    start, stop = (_array(left, batch * seq_len).reshape(batch, seq_len) for _ in range(2))
    return _Rows(Intervals(start, stop))


@dataclass(frozen=True)
class _Rows(StructuredMask):
    """What a mask of a kind of its own said of each row."""

    seen: Intervals

    def intervals(self, batch: int, seq_len: int, kv_len: int) -> Intervals:
        """Return it."""
        return self.seen


@dataclass(frozen=True)
class _Repeated(StructuredMask):
    """A mask whose batch stands several times behind itself."""

    mask: StructuredMask
    times: int

    def intervals(self, batch: int, seq_len: int, kv_len: int) -> Intervals:
        """Return what the mask says, as often."""
        seen = self.mask.intervals(batch // self.times, seq_len, kv_len)
        if len(seen.start) == 1:
            return seen
        return Intervals(*(np.tile(edge, (self.times, 1)) for edge in (seen.start, seen.stop)))


def _side(align: Align) -> int:
    return int(align == "upper_left")


def _align(left: Iterator[int]) -> Align:
    return "upper_left" if next(left) else "lower_right"


def _count(number: int | None) -> int:
    return _NONE if number is None else min(number, _MANY)


def _maybe(left: Iterator[int]) -> int | None:
    number = next(left)
    return None if number == _NONE else number


def _counts(numbers: Sequence[int] | None) -> list[int]:
    return [_NONE] if numbers is None else [len(numbers), *numbers]


def _list(left: Iterator[int]) -> list[int]:
    return [next(left) for _ in range(next(left))]


def _maybe_list(left: Iterator[int]) -> list[int] | None:
    count = next(left)
    return None if count == _NONE else [next(left) for _ in range(count)]


def _array(left: Iterator[int], count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.fromiter(left, dtype=np.int64, count=count)
