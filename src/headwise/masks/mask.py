"""What a mask is: something that `&` intersects; `Dense` for any tensor, `Intersection` for several masks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from headwise.errors import ArgumentError
from headwise.masks.shapes import Axes, Sizes, broadcast_shape, check_choice, shape_of


class Mask:
    """What all masks share: they can be intersected with `&`, also with a plain boolean or float tensor."""

    __array_ufunc__ = None  # lets `numpy_array & mask` reach __rand__

    follows_diagonal: ClassVar[bool] = False
    """Whether what a row sees depends on where its query stands among the keys."""

    @property
    def is_value(self) -> bool:
        """Whether its meaning follows from fields that nobody can change, so that it can be remembered."""
        return False

    @property
    def lacks_diagonal(self) -> bool:
        """Whether queries and keys are paired in a way that leaves a query no position among the keys."""
        return False

    @property
    def parts(self) -> tuple[Mask, ...]:
        """The masks whose intersection this is; itself, for most."""
        return (self,)

    def __and__(self, other: Any) -> Intersection:
        """Return the mask of the keys that both masks let through."""
        return Intersection((*self.parts, *as_mask(other).parts))

    def __rand__(self, other: Any) -> Intersection:
        """Return the mask of the keys that both masks let through."""
        return Intersection((*as_mask(other).parts, *self.parts))


@dataclass(frozen=True, eq=False)
class Dense(Mask):
    """Any mask, as a tensor: boolean (True means may attend) or float (-inf hides, else a bias).

    Args:
        tensor: NumPy array or torch tensor of rank 2 (seq, kv), 3 (batch, seq, kv) or 4 (batch, head, seq,
            kv); sizes of 1 are broadcast.
        axes: what the axes are, where the rank leaves it open: a rank-3 tensor may be `"bqk"` or `"hqk"`.

    Raises:
        ArgumentError: the rank or dtype is not allowed, or `axes` does not fit the rank.

    Example:
        >>> import numpy as np
        >>> Dense(np.tri(3, dtype=bool)).is_boolean
        True

    """

    tensor: Any
    axes: Axes | None = None

    def __post_init__(self) -> None:
        shape = shape_of(self.tensor)
        if self.axes is not None:
            check_choice("axes", self.axes, Axes)
            if len(self.axes) != len(shape):
                raise ArgumentError(
                    f"axes={self.axes!r} names {len(self.axes)} axes, but the mask has rank {len(shape)}"
                )
        if len(shape) not in (2, 3, 4):
            raise ArgumentError(
                f"mask has rank {len(shape)}, shape {shape}; allowed are rank 2 (seq, kv), "
                "3 (batch, seq, kv) and 4 (batch, head, seq, kv); for one length per batch element use "
                "Lengths(...)"
            )
        if not self.is_boolean and "float" not in self._kind:
            raise ArgumentError(
                f"mask has dtype {self._kind}; allowed are boolean (True means may attend) and float (added "
                "to the scores); for zeros and ones pass mask.bool() or mask.astype(bool)"
            )

    @property
    def is_boolean(self) -> bool:
        """Whether the tensor says which keys are visible, rather than what to add to their scores."""
        return self._kind == "bool"

    @property
    def _kind(self) -> str:
        return str(self.tensor.dtype).removeprefix("torch.")

    def broadcast_shape(self, sizes: Sizes) -> tuple[int, int, int, int]:
        """Return the rank-4 shape (batch, head, seq, kv) the tensor reshapes to, sizes of 1 left as they are.

        Raises:
            ArgumentError: a size is neither 1 nor the problem's, or a rank-3 tensor could be read two ways.

        """
        return broadcast_shape("mask", shape_of(self.tensor), self.axes, sizes)


@dataclass(frozen=True)
class Intersection(Mask):
    """The keys that every one of several masks lets through; written `a & b`.

    Raises:
        ArgumentError: one mask needs a common diagonal of queries and keys, another has none.

    """

    members: tuple[Mask, ...]

    def __post_init__(self) -> None:
        without = [part for part in self.members if part.lacks_diagonal]
        along = [part for part in self.members if part.follows_diagonal]
        if without and along:
            raise ArgumentError(
                f"{type(without[0]).__name__} with key_lengths cannot be combined with "
                f"{type(along[0]).__name__}: its documents are rectangles with no common diagonal; "
                "run the documents one by one, or leave key_lengths out"
            )

    @property
    def is_value(self) -> bool:
        """Whether every one of them is."""
        return all(member.is_value for member in self.members)

    @property
    def parts(self) -> tuple[Mask, ...]:
        """The masks whose intersection this is."""
        return self.members


def as_mask(mask: Any) -> Mask:
    """Return `mask` as a mask object; a boolean or float tensor becomes `Dense`.

    Raises:
        ArgumentError: `mask` is neither a mask object nor a tensor that can be one.

    """
    if isinstance(mask, Mask):
        return mask
    if hasattr(mask, "shape") and hasattr(mask, "dtype"):
        return Dense(mask)
    raise ArgumentError(
        f"mask is a {type(mask).__name__}; allowed are None, a mask object such as Causal(), "
        "or a boolean or float tensor"
    )
