"""What was found by trying layouts on an input and its output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwise.errors import ArgumentError, MismatchError
from headwise.nn.layouts.weights import HeadWeights


@dataclass(frozen=True)
class LayoutFit:
    """How near one reading of the weights comes to the output.

    Args:
        layouts: the layouts that read these weights so, to the bit; where there are several, nothing in the
            weights could tell them apart.
        causal: whether it was run causally; None where the caller gave the mask.
        error: largest difference from the output, over the largest number that the heads put into it.
        weights: what was read.

    """

    layouts: tuple[str, ...]
    causal: bool | None
    error: float
    weights: HeadWeights = field(repr=False, compare=False)

    def __str__(self) -> str:
        how = {None: "", True: ", causal", False: ", not causal"}[self.causal]
        return f"{' = '.join(self.layouts)}{how}: error {self.error:.1e}"


@dataclass(frozen=True)
class Detection:
    """Every reading that was tried, nearest first, and the layouts that the weights cannot have.

    Args:
        tried: the readings, by error.
        refused: why each other layout was not tried, by name.
        tolerance: the error up to which a reading fits.

    """

    tried: tuple[LayoutFit, ...]
    refused: Mapping[str, str]
    tolerance: float

    @property
    def fits(self) -> tuple[LayoutFit, ...]:
        """The readings within the tolerance, nearest first."""
        return tuple(one for one in self.tried if one.error <= self.tolerance)

    def only(self) -> LayoutFit:
        """Return the one reading that fits.

        Raises:
            MismatchError: none fits.
            ArgumentError: several fit, so that the input and the output decide nothing.

        """
        if not self.fits:
            raise MismatchError(str(self))
        if len(self.fits) > 1:
            raise ArgumentError(str(self))
        return self.fits[0]

    def __str__(self) -> str:
        """Return the verdict, every error and every reason, a line each."""
        tried = [f"  {'fits' if one.error <= self.tolerance else '    '}  {one}" for one in self.tried]
        refused = [f"  not tried: {reason}" for reason in self.refused.values()]
        return "\n".join([self._verdict(), *tried, *refused])

    def _verdict(self) -> str:
        limit = f"{self.tolerance:.1e}"
        if not self.tried:
            return "no layout can have these weights"
        if not self.fits:
            return (
                f"none of {len(self.tried)} readings comes within {limit}; the nearest is {self.tried[0]}. "
                "Is num_heads right? Does the output include a residual, or lack the output projection? Has "
                "the layer another scale, a bias, a mask or rope?"
            )
        if len(self.fits) > 1:
            return (
                f"{len(self.fits)} readings come within {limit}, so these inputs cannot decide; longer "
                "or larger ones may"
            )
        return f"one of {len(self.tried)} readings comes within {limit}: {self.fits[0]}"
