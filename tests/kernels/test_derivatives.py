"""The backward pass's vector code by its formulas in float64: what is hidden, nothing touched beside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from headwise.kernels.geometry import TILE
from headwise.kernels.host import GEOMETRY

from .emitted import native

Floats = NDArray[Any]
RANGES = ((0, TILE), (16, 48))
HOSTILE = (np.nan, np.inf, -np.inf, np.float32(3e38))

ranges = pytest.mark.parametrize(("start", "stop"), RANGES)


class Rows:
    """Scores and gradients of three rows, and what is known of each row's softmax."""

    def __init__(self, start: int, stop: int) -> None:
        rng = np.random.default_rng([start, stop])
        self.start, self.stop = start, stop
        self.scores = (3 * rng.standard_normal((3, TILE))).astype(np.float32)
        self.gradients = rng.standard_normal((3, TILE)).astype(np.float32)
        self.scores[1, start + 3 : start + 9] = -np.inf
        self.scores[2, start + 2] = -300.0  # a weight too small for float32
        self.maxima = self.scores[:, start:stop].max(1) + np.array([0, 2, 0], np.float32)  # of other tiles
        self.inverses = rng.uniform(0.01, 1.0, 3).astype(np.float32)
        self.sums = rng.standard_normal(3).astype(np.float32)

    @property
    def weights(self) -> Floats:
        below = self.scores.astype(np.float64) - self.maxima[:, None]
        found: Floats = np.exp(below) * self.inverses[:, None]
        return found

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Which keys are worked at."""
        keys = np.arange(TILE)
        return (keys >= self.start) & (keys < self.stop)

    def derived(self, *factors: Floats) -> tuple[Floats, Floats]:
        """Return what the vector code makes of scores and gradients."""
        scores, gradients = self.scores.copy(), self.gradients.copy()
        name = "headwise_derive_dropped_rows" if factors else "headwise_derive_rows"
        numbers = (self.start, self.stop, self.maxima, self.inverses, self.sums)
        native(name)(3, *factors, scores, gradients, *numbers)
        return scores, gradients

    def assert_right(self, found: tuple[Floats, Floats], weights: Floats, gradients: Floats) -> None:
        inside, given = self.inside, (self.scores, self.gradients)
        for numbers, wanted, before in zip(found, (weights, gradients), given, strict=True):
            np.testing.assert_allclose(numbers[:, inside], wanted[:, inside], rtol=2e-6, atol=1e-7)
            np.testing.assert_array_equal(numbers[:, ~inside], before[:, ~inside])


@ranges
def test_rows_are_derived_by_the_formula(start: int, stop: int) -> None:
    rows = Rows(start, stop)
    wanted = rows.weights * (rows.gradients.astype(np.float64) - rows.sums[:, None])
    rows.assert_right(rows.derived(), rows.weights, wanted)


@ranges
def test_dropped_rows_are_derived_by_the_formula(start: int, stop: int) -> None:
    rows = Rows(start, stop)
    factors = np.float32(1.25) * (np.random.default_rng(1).random((3, TILE)) < 0.8).astype(np.float32)
    through = rows.gradients.astype(np.float64) * factors
    wanted = rows.weights * (through - rows.sums[:, None])
    rows.assert_right(rows.derived(factors), rows.weights * factors, wanted)


@pytest.mark.parametrize("number", HOSTILE)
def test_a_hidden_key_has_the_gradient_0_whatever_its_value(number: float) -> None:
    rows = Rows(16, 48)
    clean = rows.derived()
    rows.gradients[1, 19:25] = number
    found = rows.derived()
    assert (found[1][1, 19:25] == 0).all()
    np.testing.assert_array_equal(found[0], clean[0])
    rest = np.delete(np.arange(TILE), np.arange(19, 25))
    np.testing.assert_array_equal(found[1][:, rest], clean[1][:, rest])


@pytest.mark.parametrize("number", HOSTILE)
def test_a_dropped_key_is_as_if_its_gradient_were_0(number: float) -> None:
    rows = Rows(16, 48)
    factors = np.ones((3, TILE), np.float32)
    factors[0, 30] = 0.0
    clean = rows.derived(factors)
    rows.gradients[0, 30] = number
    for found, wanted in zip(rows.derived(factors), clean, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_nan_that_is_seen_counts_however_small_its_weight() -> None:
    rows = Rows(16, 48)
    rows.gradients[2, 18] = np.nan  # beside a weight of 0
    rows.gradients[0, 40] = np.nan
    _, found = rows.derived()
    assert np.argwhere(np.isnan(found)).tolist() == [[0, 40], [2, 18]]


def test_a_row_without_a_softmax_is_0() -> None:
    rows = Rows(16, 48)
    rows.scores[1, 16:48] = -np.inf
    rows.gradients[1] = np.nan
    rows.maxima[1], rows.inverses[1], rows.sums[1] = 0.0, 0.0, np.nan
    weights, gradients = rows.derived()
    assert (weights[1, 16:48] == 0).all()
    assert (gradients[1, 16:48] == 0).all()


@ranges
@pytest.mark.parametrize("softcap", [0.3, 30.0, 1e30])
def test_the_slopes_of_a_softcap(start: int, stop: int, softcap: float) -> None:
    scores = np.linspace(-40, 40, 2 * TILE).astype(np.float32).reshape(2, TILE)
    found = np.full((2, TILE), 77, np.float32)
    native("headwise_note_slopes")(2, scores, found, start, stop, softcap)
    inside = (np.arange(TILE) >= start) & (np.arange(TILE) < stop)
    exact = 1 / np.cosh(scores.astype(np.float64) / np.float32(softcap)) ** 2
    np.testing.assert_allclose(found[:, inside], exact[:, inside], rtol=1e-5, atol=1e-37)
    assert (found[:, ~inside] == 77).all()


def test_slopes_where_numbers_end() -> None:
    scores = np.zeros((1, TILE), np.float32)
    scores[0, :4] = np.inf, -np.inf, np.nan, 3e38
    found = np.full((1, TILE), 77, np.float32)
    native("headwise_note_slopes")(1, scores, found, 0, TILE, 2.0)
    np.testing.assert_array_equal(found[0, :5], [0, 0, np.nan, 0, 1])


@ranges
def test_gradients_times_slopes(start: int, stop: int) -> None:
    rng = np.random.default_rng(2)
    gradients, slopes = rng.standard_normal((2, 3, TILE)).astype(np.float32)
    gradients[1, start + 1], slopes[1, start + 1] = 0.0, np.nan  # hidden
    gradients[0, start + 2], slopes[2, start + 3] = np.nan, np.nan
    found = gradients.copy()
    native("headwise_multiply_by_slopes")(3, found, slopes, start, stop)
    wanted = gradients.copy()
    wanted[:, start:stop] *= slopes[:, start:stop]
    wanted[1, start + 1] = 0.0
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("width", sorted({1, 3, 7, 16, 17, 64, 250, GEOMETRY.lanes, 3 * GEOMETRY.lanes + 1}))
def test_products_of_rows(width: int) -> None:
    rng = np.random.default_rng(width)
    left, right = rng.standard_normal((2, 5 * width)).astype(np.float32)
    found = np.full(7, 77, np.float32)
    native("headwise_multiply_rows")(5, left, right, width, found)
    terms = (left.astype(np.float64) * right).reshape(5, width)
    bound = 2 * np.finfo(np.float32).eps * np.abs(terms).sum(1)
    assert (np.abs(found[:5] - terms.sum(1)) <= bound).all()
    assert (found[5:] == 77).all()


@pytest.mark.parametrize("column", [0, 16, 18])
def test_what_is_not_finite_in_one_row_stays_in_its_sum(column: int) -> None:
    left, right = np.ones((2, 3, 19), np.float32)
    left[1, column] = np.nan
    found = np.zeros(3, np.float32)
    native("headwise_multiply_rows")(3, left, right, 19, found)
    np.testing.assert_array_equal(found, [19, np.nan, 19])
