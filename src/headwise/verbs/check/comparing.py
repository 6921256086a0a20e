"""How far an answer is off, and how far rounding may take it.

An answer may be off by four times what the same computation, plainly done in the subject's own dtype, is off,
and by some units in the last place: more for larger scores, whose rounding the exponential magnifies. That
leaves room for masks of -1e9, powers of two, and sums in another order. It is capped, so that a bad baseline
excuses nothing.
"""

from __future__ import annotations

from math import inf, isnan, nan
from typing import NamedTuple

import torch
from torch import Tensor

from headwise.verbs.check.asking import Projections, Role, Subject
from headwise.verbs.check.probes import Probe
from headwise.verbs.check.recipe import CannotComputeError, Computation, Computed, Recipe, Weights

# Of the largest value; what is off by more is wrong, whatever a plain computation is off by.
CAPS = {torch.float64: 1e-9, torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}
# Where the product itself is rounded to 16 bits, in whatever order its sums are taken.
_LOOSE = {"float16 product": 1e-2, "bfloat16 product": 5e-2}
# A key decides a row where all others together weigh less than this.
_DECIDED = 1e-9
# Scores are sums of products of rounded sums: their last digits, by how many units, are rounding.
_DIGITS = 16


class Distance(NamedTuple):
    """The largest difference and what is allowed; NaN where one is finite and the other is not."""

    error: float
    allowed: float

    @property
    def fits(self) -> bool:
        """Whether rounding explains the difference."""
        return self.error <= self.allowed


class Question:
    """A probe with the subject's answer, held against any recipe."""

    def __init__(
        self, subject: Subject, readings: tuple[Projections, ...], probe: Probe, found: Tensor
    ) -> None:
        self.probe = probe
        self._found = found.detach().double()
        self._size = float(self._found.nan_to_num(0.0, posinf=0.0, neginf=0.0).abs().max())
        self._dtype = probe.inputs.query.dtype
        self.exactly, self._plainly = (
            Computation(
                form=subject.form,
                sizes=subject.sizes,
                readings=readings,
                inputs=probe.inputs,
                past=probe.past,
                dtype=dtype,
            )
            for dtype in (torch.float64, self._dtype)
        )

    @property
    def tells_something(self) -> bool:
        """Whether there is a finite number in the answer."""
        return bool(self._found.isfinite().any())

    def distance(self, recipe: Recipe, *, in_full: bool = False) -> Distance:
        """Return how far the answer is from a recipe's; infinite where the recipe has none of that shape.

        Args:
            recipe: what it is held against.
            in_full: whether what is allowed is worked out where the error is beyond any allowance, too.

        """
        if self._is_open(recipe):
            return Distance(0.0, 0.0)
        try:
            exact = self.exactly.answer(recipe)
        except CannotComputeError:
            return Distance(inf, 0.0)
        counted = self._counted(exact, recipe)
        nothing_counts = counted is not None and self.probe.must_count and not bool(counted.any())
        if exact.output.shape != self._found.shape or nothing_counts:
            return Distance(inf, 0.0)
        return self._measured(exact, recipe, counted, in_full=in_full)

    def _measured(
        self, exact: Computed, recipe: Recipe, counted: Tensor | None, *, in_full: bool
    ) -> Distance:
        found, right = self._found, exact.output
        if counted is not None:
            found, right = found[counted], right[counted]
        loose = _LOOSE.get(recipe.precision)
        share = loose or CAPS[self._dtype]
        far = float((found - right).abs_().max()) if found.numel() else 0.0
        if not in_full and far > 2 * share * self._size:
            return Distance(far, share * self._size)
        error, size = _difference(found, right)
        if self.probe.must_count and size == 0.0 and not bool(right.isfinite().any()):
            return Distance(inf, 0.0)
        if loose is not None or not (in_full or error <= share * size):
            return Distance(error, share * size)
        return Distance(error, min(share * size, self._allowed(recipe, exact, counted, size)))

    def _is_open(self, recipe: Recipe) -> bool:
        """Whether a recipe leaves the answer open, for it cannot say what such a mask means."""
        mask = self.probe.inputs.options.get(Role.MASK)
        if mask is None or recipe.masking == "added":
            return False
        if mask.dtype != torch.bool and recipe.masking in ("nonzero attends", "nonzero ignores"):
            return False
        return (recipe.mask_means if mask.dtype == torch.bool else recipe.float_mask) == "other"

    def _allowed(self, recipe: Recipe, exact: Computed, counted: Tensor | None, size: float) -> float:
        plain = self._plainly.answer(recipe).output.double()
        right = exact.output
        if counted is not None:
            plain, right = plain[counted], right[counted]
        off, _ = _difference(plain, right)
        eps = torch.finfo(self._dtype).eps
        return (4 * off if off < inf else 0.0) + eps * (16 + 4 * exact.weights.largest_score()) * size

    def _decided(self, weights: Weights) -> Tensor:
        """Return the rows `[batch, seq_len]` where one key decides in each head, whatever the rounding."""
        largest = weights.weights.amax(dim=-1)
        decided = (largest > 1 - _DECIDED) | largest.isnan()
        first, second = weights.scores.topk(2, dim=-1).values.unbind(dim=-1)
        rounding = _DIGITS * torch.finfo(self._dtype).eps * weights.largest_score()
        return (decided & ((first - second > rounding) | largest.isnan())).all(dim=1)

    def _counted(self, exact: Computed, recipe: Recipe) -> Tensor | None:
        """Return which rows count, in the axes of the output; None: all."""
        weights = exact.weights
        rows = weights.known
        if self.probe.skips_empty and weights.empty is not None:
            rows = ~weights.empty if rows is None else rows & ~weights.empty
        if self.probe.only_decided:
            decided = self._decided(weights)
            rows = decided if rows is None else rows & decided
        if rows is None:
            return None
        if recipe.heads_mixed and exact.output.dim() == 3:
            # What is known is known of heads there, not of tokens.
            return rows.all(dim=1, keepdim=True).expand(exact.output.shape[:2])
        if exact.output.dim() == 3:
            return rows.mT if recipe.batch_mixed else rows
        of_heads = rows[:, :, None] if recipe.heads_mixed else rows[:, None]
        return of_heads.expand(exact.output.shape[:3])


def _difference(found: Tensor, right: Tensor) -> tuple[float, float]:
    """Return the largest difference and the largest right value; infinite where only one is finite."""
    if right.numel() == 0:
        return 0.0, 0.0
    finite = right.isfinite()
    if not bool(finite.all()):
        same = torch.equal(finite, found.isfinite()) and torch.equal(right.isnan(), found.isnan())
        found, right = found[finite], right[finite]
        size = float(right.abs().max()) if right.numel() else 0.0
        if not same or right.numel() == 0:
            return (0.0 if same else inf), size
    error = float((found - right).abs().max())
    return (inf if isnan(error) else error), float(right.abs().max())


def worst(distances: list[Distance]) -> Distance:
    """Return the distance that is furthest beyond, or comes nearest to, what it is allowed."""
    return max(distances, key=_share, default=Distance(nan, nan))


def _share(distance: Distance) -> float:
    if distance.error == 0.0:
        return 0.0
    return distance.error / distance.allowed if distance.allowed > 0 else inf
