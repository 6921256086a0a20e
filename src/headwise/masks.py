"""Which keys each query may see.

Every structured mask is one interval of visible keys per row: `start[b, i] <= j < stop[b, i]`. Causal order,
windows, padding, packed documents and prefixes all have that form, and `&` intersects them, so whatever
computes attention needs two integer arrays and no case per kind of mask. Only `Dense` carries a tensor.

In a rectangle (seq_len differs from kv_len) the query's own position has to be agreed on. With
`align="lower_right"`, the default, query i stands at key `i + kv_len - seq_len`: the last query sees all keys,
which is what a KV cache needs. With `align="upper_left"` query i stands at key i:

    lower_right, 2 x 5     upper_left, 2 x 5
    1 1 1 1 0              1 0 0 0 0
    1 1 1 1 1              1 1 0 0 0
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from headwise.errors import ArgumentError

Align = Literal["lower_right", "upper_left"]
Padding = Literal["right", "left"]
Axes = Literal["qk", "bqk", "hqk", "bhqk"]


@dataclass(frozen=True)
class Intervals:
    """The visible keys of each row: `start` and `stop`, int64 `[batch or 1, seq_len]`, `start <= j < stop`."""

    start: NDArray[np.int64]
    stop: NDArray[np.int64]

    def __and__(self, other: Intervals) -> Intervals:
        """Return the keys that both see."""
        return Intervals(np.maximum(self.start, other.start), np.minimum(self.stop, other.stop))

    def visible(self, kv_len: int) -> NDArray[np.bool_]:
        """Return the boolean `[batch or 1, seq_len, kv_len]` that the intervals stand for."""
        keys = np.arange(kv_len)
        return (keys >= self.start[..., None]) & (keys < self.stop[..., None])


class Mask:
    """What all masks share: they can be intersected with `&`, also with a plain boolean or float tensor."""

    __array_ufunc__ = None  # lets `numpy_array & mask` reach __rand__

    def __and__(self, other: Any) -> Intersection:
        """Return the mask of the keys that both masks let through."""
        return Intersection((*_parts(self), *_parts(as_mask(other))))

    def __rand__(self, other: Any) -> Intersection:
        """Return the mask of the keys that both masks let through."""
        return Intersection((*_parts(as_mask(other)), *_parts(self)))


class StructuredMask(Mask):
    """A mask that is one interval of keys per row."""

    def intervals(self, batch: int, seq_len: int, kv_len: int) -> Intervals:
        """Return the visible keys of each row; the numbers may lie outside `0 .. kv_len`."""
        raise NotImplementedError


def _own_positions(align: Align, seq_len: int, kv_len: int) -> NDArray[np.int64]:
    """Return the key position at which each query stands, `[1, seq_len]`."""
    offset = kv_len - seq_len if align == "lower_right" else 0
    return np.arange(seq_len, dtype=np.int64)[None] + offset


@dataclass(frozen=True)
class Causal(StructuredMask):
    """Each query sees its own position and everything before it.

    Args:
        align: where the queries stand when seq_len differs from kv_len; see the module's drawing.

    Example:
        >>> Causal().intervals(1, 2, 5).stop
        array([[4, 5]])

    """

    align: Align = "lower_right"

    def __post_init__(self) -> None:
        _check_choice("align", self.align, Align)

    def intervals(self, batch: int, seq_len: int, kv_len: int) -> Intervals:
        """Return `0 <= j <= position`."""
        own = _own_positions(self.align, seq_len, kv_len)
        return Intervals(np.zeros_like(own), own + 1)


@dataclass(frozen=True)
class Window(StructuredMask):
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

    def __post_init__(self) -> None:
        _check_choice("align", self.align, Align)
        for side in ("left", "right"):
            count = getattr(self, side)
            if count is not None:
                _check_count(f"Window({side}=...)", count, at_least=0)

    @classmethod
    def of(cls, size: int) -> Window:
        """Return the causal window of `size` keys including the query's own, as `sliding_window` counts."""
        _check_count("Window.of(size)", size, at_least=1)
        return cls(left=size - 1, right=0)

    def intervals(self, batch: int, seq_len: int, kv_len: int) -> Intervals:
        """Return `position - left <= j <= position + right`."""
        own = _own_positions(self.align, seq_len, kv_len)
        start = np.zeros_like(own) if self.left is None else own - self.left
        stop = np.full_like(own, kv_len) if self.right is None else own + self.right + 1
        return Intervals(start, stop)


@dataclass(frozen=True)
class Lengths(StructuredMask):
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
        _check_choice("padding", self.padding, Padding)
        object.__setattr__(self, "lengths", _counts("lengths", self.lengths))

    def intervals(self, batch: int, seq_len: int, kv_len: int) -> Intervals:
        """Return `j < length`, or `j >= kv_len - length` with the padding on the left."""
        real = _per_batch("lengths", self.lengths, batch, kv_len)
        rows = np.broadcast_to(real[:, None], (batch, seq_len))
        if self.padding == "right":
            return Intervals(np.zeros_like(rows), rows)
        return Intervals(kv_len - rows, np.full_like(rows, kv_len))


@dataclass(frozen=True)
class Packed(StructuredMask):
    """Several documents stand one after the other in a row; each query sees its own document only.

    Args:
        lengths: queries of each document, the same for every batch element. Rows past the last document are
            padding and see nothing.
        key_lengths: keys of each document, where they differ from the queries (cross-attention).

    Example:
        >>> Packed([2, 1]).intervals(1, 3, 3).start
        array([[0, 0, 2]])

    """

    lengths: Sequence[int]
    key_lengths: Sequence[int] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengths", _counts("lengths", self.lengths))
        if self.key_lengths is not None:
            object.__setattr__(self, "key_lengths", _counts("key_lengths", self.key_lengths))
            if len(self.key_lengths) != len(self.lengths):
                raise ArgumentError(
                    f"Packed has {len(self.lengths)} lengths and {len(self.key_lengths)} key_lengths; "
                    "give one of each per document"
                )

    def intervals(self, batch: int, seq_len: int, kv_len: int) -> Intervals:
        """Return the keys of each row's own document."""
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
class Prefix(StructuredMask):
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

    def __post_init__(self) -> None:
        _check_choice("align", self.align, Align)
        if isinstance(self.lengths, Iterable):
            object.__setattr__(self, "lengths", _counts("lengths", self.lengths))
        else:
            _check_count("Prefix(lengths)", self.lengths, at_least=0)

    def intervals(self, batch: int, seq_len: int, kv_len: int) -> Intervals:
        """Return `j <= position` or `j < prefix`, whichever reaches further."""
        lengths = self.lengths if isinstance(self.lengths, tuple) else (self.lengths,) * batch
        prefix = _per_batch("lengths", lengths, batch, kv_len)[:, None]
        stop = np.maximum(_own_positions(self.align, seq_len, kv_len) + 1, prefix)
        return Intervals(np.zeros_like(stop), stop)


@dataclass(frozen=True, eq=False)
class Dense(Mask):
    """Any mask, as a tensor: boolean (True means may attend) or float (-inf hides, anything finite is a bias).

    Args:
        tensor: NumPy array or torch tensor of rank 2 (seq, kv), 3 (batch, seq, kv) or 4 (batch, head, seq, kv);
            sizes of 1 are broadcast.
        axes: what the axes are, where the rank leaves it open: a rank-3 tensor may be `"bqk"` or `"hqk"`.

    """

    tensor: Any
    axes: Axes | None = None

    def __post_init__(self) -> None:
        rank = len(_shape(self.tensor))
        if self.axes is not None:
            _check_choice("axes", self.axes, Axes)
            if len(self.axes) != rank:
                raise ArgumentError(
                    f"axes={self.axes!r} names {len(self.axes)} axes, the mask has rank {rank}"
                )
        if rank not in (2, 3, 4):
            raise ArgumentError(
                f"mask has rank {rank}, shape {_shape(self.tensor)}; allowed are rank 2 (seq, kv), 3 (batch, seq, kv) "
                "and 4 (batch, head, seq, kv); for one length per batch element use Lengths(...)"
            )
        kind = str(self.tensor.dtype).removeprefix("torch.")
        if kind != "bool" and "float" not in kind:
            raise ArgumentError(
                f"mask has dtype {kind}; allowed are boolean (True means may attend) and float (added to the "
                "scores); for zeros and ones pass mask.bool() or mask.astype(bool)"
            )

    @property
    def is_boolean(self) -> bool:
        """Whether the tensor says which keys are visible, rather than what to add to their scores."""
        return str(self.tensor.dtype).removeprefix("torch.") == "bool"

    def broadcast_shape(self, sizes: Sizes) -> tuple[int, int, int, int]:
        """Return the rank-4 shape (batch, head, seq, kv) the tensor reshapes to, sizes of 1 left as they are.

        Raises:
            ArgumentError: a size is neither 1 nor the problem's, or a rank-3 tensor could be read two ways.

        """
        return broadcast_shape("mask", _shape(self.tensor), self.axes, sizes)


@dataclass(frozen=True)
class Intersection(Mask):
    """The keys that every one of `parts` lets through; written `a & b`."""

    parts: tuple[Mask, ...]

    def __post_init__(self) -> None:
        rectangular = [
            part for part in self.parts if isinstance(part, Packed) and part.key_lengths is not None
        ]
        positional = [part for part in self.parts if isinstance(part, (Causal, Window, Prefix))]
        if rectangular and positional:
            raise ArgumentError(
                f"Packed with key_lengths cannot be combined with {type(positional[0]).__name__}: its documents are "
                "rectangles with no common diagonal; run the documents one by one, or leave key_lengths out"
            )


@dataclass(frozen=True)
class Sizes:
    """The sizes of one attention problem that a mask or bias must fit."""

    batch: int
    num_heads: int
    seq_len: int
    kv_len: int


@dataclass(frozen=True)
class ResolvedMask:
    """A mask on given sizes: one interval per row, clipped to the keys there are, and the dense parts."""

    intervals: Intervals
    dense: tuple[Dense, ...]


def resolve(mask: Mask | Any | None, sizes: Sizes) -> ResolvedMask:
    """Return what `mask` (a mask object, a tensor, or None for no mask) means on a problem of these sizes."""
    intervals = Intervals(
        np.zeros((1, sizes.seq_len), np.int64), np.full((1, sizes.seq_len), sizes.kv_len, np.int64)
    )
    dense = []
    for part in () if mask is None else _parts(as_mask(mask)):
        if isinstance(part, StructuredMask):
            intervals = intervals & part.intervals(sizes.batch, sizes.seq_len, sizes.kv_len)
        elif isinstance(part, Dense):
            part.broadcast_shape(sizes)
            dense.append(part)
    return ResolvedMask(intervals, tuple(dense))


def as_mask(mask: Any) -> Mask:
    """Return `mask` as a mask object; a boolean or float tensor becomes `Dense`."""
    if isinstance(mask, Mask):
        return mask
    if hasattr(mask, "shape") and hasattr(mask, "dtype"):
        return Dense(mask)
    raise ArgumentError(
        f"mask is a {type(mask).__name__}; allowed are None, a mask object such as Causal(), "
        "or a boolean or float tensor"
    )


def broadcast_shape(
    name: str, shape: tuple[int, ...], axes: Axes | None, sizes: Sizes
) -> tuple[int, int, int, int]:
    """Return the (batch, head, seq, kv) shape that a mask or bias called `name` reshapes to, or refuse it."""
    letters = axes or _guess_axes(name, shape, sizes)
    full = {"b": sizes.batch, "h": sizes.num_heads, "q": sizes.seq_len, "k": sizes.kv_len}
    found = dict(zip(letters, shape, strict=True))
    for letter, size in found.items():
        if size not in (1, full[letter]):
            words = {"b": "batch", "h": "num_heads", "q": "seq_len", "k": "kv_len"}
            expected = ", ".join(f"{words[axis]}={full[axis]}" for axis in letters)
            raise ArgumentError(
                f"{name} has shape {shape}, but {words[letter]} is {full[letter]}, not {size}; expected ({expected}), "
                "each of them or 1"
            )
    batch, head, seq, kv = (found.get(letter, 1) for letter in "bhqk")
    return batch, head, seq, kv


def _guess_axes(name: str, shape: tuple[int, ...], sizes: Sizes) -> Axes:
    if len(shape) == 2:
        return "qk"
    if len(shape) == 4:
        return "bhqk"
    if len(shape) != 3:
        raise ArgumentError(f"{name} has rank {len(shape)}, shape {shape}; allowed are ranks 2, 3 and 4")
    first = shape[0]
    if first == sizes.batch == sizes.num_heads != 1:
        raise ArgumentError(
            f"{name} has shape {shape}: its first size {first} is equally batch and num_heads; "
            'say which with Dense(tensor, axes="bqk") or Dense(tensor, axes="hqk"), or pass rank 4'
        )
    return "hqk" if first == sizes.num_heads and first not in (1, sizes.batch) else "bqk"


def _parts(mask: Mask) -> tuple[Mask, ...]:
    return mask.parts if isinstance(mask, Intersection) else (mask,)


def _shape(tensor: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in tensor.shape)


def _check_choice(name: str, given: Any, choices: Any) -> None:
    if given not in get_args(choices):
        raise ArgumentError(
            f"{name}={given!r} is unknown; allowed are {', '.join(map(repr, get_args(choices)))}"
        )


def _check_count(name: str, given: Any, *, at_least: int) -> None:
    if isinstance(given, bool) or not isinstance(given, (int, np.integer)) or given < at_least:
        raise ArgumentError(f"{name} is {given!r}; it must be an integer of at least {at_least}")


def _counts(name: str, given: Iterable[Any]) -> tuple[int, ...]:
    """Return `given`, which may be a list, an array or a tensor, as plain integers."""
    counts = tuple(item.item() if hasattr(item, "item") else item for item in given)
    for count in counts:
        _check_count(f"an entry of {name}", count, at_least=0)
    return counts


def _per_batch(name: str, counts: Sequence[int], batch: int, kv_len: int) -> NDArray[np.int64]:
    if len(counts) != batch:
        raise ArgumentError(
            f"{name} has {len(counts)} entries, but batch is {batch}; give one for each batch element"
        )
    if counts and max(counts) > kv_len:
        raise ArgumentError(f"{name} has an entry of {max(counts)}, but there are only kv_len={kv_len} keys")
    return np.asarray(counts, dtype=np.int64)
