"""Whether what a backend gave is right, right by another convention, or wrong."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.verbs.check_machine.exact import Float64, Results

# What is off by more than this share of the largest exact value is wrong, not rounded.
ALLOWED = {"float64": 1e-12, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}
LEAK = "NaN in hidden places leaks"
IN_FLOAT32 = "float64 is computed in float32"


@dataclass(frozen=True)
class Difference:
    """The place where a result is furthest off.

    - tensor, place: what to print; the place is None where the whole has another shape
    - found, exact: the numbers there, or the shapes
    - error: their difference; infinite where one is no number and the other is
    - limit: how large it may be
    """

    tensor: str
    place: tuple[int, ...] | None
    found: float | tuple[int, ...]
    exact: float | tuple[int, ...]
    error: float
    limit: float

    @property
    def is_right(self) -> bool:
        """Whether it can come from rounding."""
        return self.error <= self.limit

    @property
    def severity(self) -> float:
        """The error in multiples of what is allowed."""
        if self.error == 0:
            return 0.0
        return self.error / self.limit if self.limit else math.inf

    @property
    def printed(self) -> str:
        """The expression that shows it."""
        if self.place is None:
            return f"tuple({self.tensor}.shape)"
        return f"{self.tensor}[{', '.join(map(str, self.place))}].item()"


def furthest(found: Results, exact: Results, dtype: str) -> Difference:
    """Return the place where `found` is furthest off, measured against what is allowed there."""
    differences = [_difference(name, found[name], exact[name], ALLOWED[dtype]) for name in exact]
    return max(differences, key=lambda each: each.severity)


def convention_of(found: Results, known: Iterable[tuple[str, Results]], dtype: str) -> str | None:
    """Return the first convention under which `found` is right, or None."""
    return next((name for name, results in known if furthest(found, results, dtype).is_right), None)


def leaks_only(found: Results, exact: Results, dtype: str) -> bool:
    """Whether all that is no NaN is right."""
    patched = {
        name: np.where(np.isnan(found[name]), exact[name], found[name])
        for name in exact
        if found[name].shape == exact[name].shape
    }
    return patched.keys() == exact.keys() and furthest(patched, exact, dtype).is_right


def with_rows(results: Results, name: str, rows: NDArray[np.bool_], exact: Results) -> Results:
    """Return results that have some rows of a tensor from the exact ones."""
    if results[name].shape != exact[name].shape:
        return results
    return {**results, name: np.where(rows, exact[name], results[name])}


def as_results(namespace: dict[str, Any], names: Iterable[str]) -> Results:
    """Return tensors of a namespace in float64."""
    return {name: namespace[name].detach().double().numpy() for name in names}


def _difference(name: str, found: Float64, exact: Float64, allowed: float) -> Difference:
    if found.shape != exact.shape:
        return Difference(name, None, found.shape, exact.shape, math.inf, 0.0)
    finite = np.abs(exact[np.isfinite(exact)])
    limit = allowed * float(finite.max(initial=0.0))
    if not exact.size:
        return Difference(name, None, found.shape, exact.shape, 0.0, limit)
    with np.errstate(invalid="ignore"):
        same = (found == exact) | (np.isnan(found) & np.isnan(exact))
        errors = np.where(same, 0.0, np.abs(found - exact))
    errors = np.where(np.isnan(errors), np.inf, errors)
    place = tuple(int(index) for index in np.unravel_index(errors.argmax(), errors.shape))
    return Difference(name, place, float(found[place]), float(exact[place]), float(errors[place]), limit)
