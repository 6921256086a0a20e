"""How the axes of a mask or bias tensor are read, and the checks that all masks share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from headwise.counts import checked_size
from headwise.errors import ArgumentError

Axes = Literal["qk", "bqk", "hqk", "bhqk"]

_AXIS_NAMES = {"b": "batch", "h": "num_heads", "q": "seq_len", "k": "kv_len"}


@dataclass(frozen=True)
class Sizes:
    """The sizes of one attention problem that a mask or bias must fit."""

    batch: int
    num_heads: int
    seq_len: int
    kv_len: int


def broadcast_shape(
    name: str, shape: tuple[int, ...], axes: Axes | None, sizes: Sizes
) -> tuple[int, int, int, int]:
    """Return the (batch, head, seq, kv) shape that a mask or bias called `name` reshapes to.

    Sizes of 1 are left as they are. Rank 3 is (batch, seq, kv), or (head, seq, kv) where only that fits.

    Raises:
        ArgumentError: a size is neither 1 nor the problem's, or a rank-3 tensor can be read two ways.

    Example:
        >>> broadcast_shape("mask", (2, 1, 7), None, Sizes(batch=2, num_heads=3, seq_len=5, kv_len=7))
        (2, 1, 1, 7)

    """
    letters = axes or _axes_by_rank(name, shape, sizes)
    full = {"b": sizes.batch, "h": sizes.num_heads, "q": sizes.seq_len, "k": sizes.kv_len}
    found = dict(zip(letters, shape, strict=True))
    for letter, size in found.items():
        if size not in (1, full[letter]):
            expected = ", ".join(f"{_AXIS_NAMES[axis]}={full[axis]}" for axis in letters)
            raise ArgumentError(
                f"{name} has shape {shape}, but {_AXIS_NAMES[letter]} is {full[letter]}, not {size}; "
                f"expected ({expected}), each of them or 1"
            )
    batch, head, seq, kv = (found.get(letter, 1) for letter in "bhqk")
    return batch, head, seq, kv


def _axes_by_rank(name: str, shape: tuple[int, ...], sizes: Sizes) -> Axes:
    if len(shape) == 2:
        return "qk"
    if len(shape) == 4:
        return "bhqk"
    if len(shape) != 3:
        raise ArgumentError(
            f"{name} has rank {len(shape)}, shape {shape}; allowed are rank 2 (seq, kv), "
            "rank 3 (batch, seq, kv) or (head, seq, kv), and rank 4 (batch, head, seq, kv)"
        )
    first = shape[0]
    if first == sizes.batch == sizes.num_heads != 1:
        raise ArgumentError(
            f"{name} has shape {shape}: its first size {first} is equally batch and num_heads; "
            'say which with Dense(tensor, axes="bqk") or Dense(tensor, axes="hqk"), or pass rank 4'
        )
    return "hqk" if first == sizes.num_heads and first not in (1, sizes.batch) else "bqk"


def shape_of(tensor: Any) -> tuple[int, ...]:
    """Return the shape of an array or tensor: integers, or the symbols for them while torch traces."""
    return tuple(tensor.shape)


def check_choice(name: str, given: Any, choices: Any) -> None:
    """Refuse `given` unless it is one of the literals `choices`."""
    if given not in get_args(choices):
        raise ArgumentError(
            f"{name}={given!r} is unknown; allowed are {', '.join(map(repr, get_args(choices)))}"
        )


def checked_counts(name: str, given: Iterable[Any]) -> tuple[int, ...]:
    """Return `given`, which may be a list, an array or a tensor of counts, as plain integers."""
    if not isinstance(given, Iterable):
        raise ArgumentError(f"{name} is {given!r}; it must be a list of integers, such as [{given!r}]")
    counts = (item if isinstance(item, int) or not hasattr(item, "item") else item.item() for item in given)
    return tuple(checked_size(f"an entry of {name}", count, at_least=0) for count in counts)
