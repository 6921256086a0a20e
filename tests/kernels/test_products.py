"""The micro-kernel, every size of strip and every ending: exact bits, and nothing touched beside the sums."""

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from headwise.kernels.geometry import DESK_ROWS, GEOMETRIES, PANEL, STRETCH
from headwise.kernels.host import BLOCK_ROWS, GEOMETRY
from headwise.kernels.ledger import LEDGER_ROWS
from headwise.kernels.products import ADDED, FRESH, MERGED

from .emitted import native, strip
from .fused import fma

DEPTHS = (0, 1, 2, 3, 17)
ENDINGS = {"fresh": FRESH, "added": ADDED, "merged": MERGED}
POISON = np.float32(np.nan)
GAP = 3


class Product:
    """Random operands of one product, NaN around them, and what must come of it."""

    def __init__(self, count: int, depth: int, seed: int = 0) -> None:
        rng = np.random.default_rng([count, depth, seed])
        self.count, self.depth = count, depth
        self.rows = self._amid_poison(rng, count, depth)
        self.panel = self._amid_poison(rng, depth, PANEL)
        self.sums = self._amid_poison(rng, count, PANEL)
        self.factors = np.full(LEDGER_ROWS + max(count, DESK_ROWS) + 1, POISON, dtype=np.float32)
        for part in (0, LEDGER_ROWS):
            self.factors[part : part + count] = rng.standard_normal(count)

    @staticmethod
    def _amid_poison(rng: np.random.Generator, *shape: int) -> NDArray[np.float32]:
        found = np.full((shape[0] + 1, shape[1] + GAP), POISON, dtype=np.float32)
        found[: shape[0], : shape[1]] = rng.standard_normal(shape)
        return found

    def chain(self, start: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return `start` plus the products, one fused multiply-add after the other along the depth."""
        total = start
        for step in range(self.depth):
            total = fma(self.rows[: self.count, step, None], self.panel[None, step, :PANEL], total)
        return total

    def wanted(self, ending: int) -> NDArray[np.float32]:
        before = self.sums[: self.count, :PANEL]
        zero = np.zeros_like(before)
        if ending == ADDED:
            return self.chain(before)
        if ending == FRESH:
            return self.chain(zero)
        old, new = (self.factors[part : part + self.count, None] for part in (0, LEDGER_ROWS))
        return fma(self.chain(zero), new, before * old)

    def operands(self, ending: int, sums: NDArray[np.float32]) -> tuple[object, ...]:
        rows, panel = np.ascontiguousarray(self.rows), np.ascontiguousarray(self.panel)
        strides = (each.shape[1] for each in (rows, panel, sums))
        arrays = zip((rows, panel, sums), strides, strict=True)
        return (ending, *(part for pair in arrays for part in pair), self.factors, self.depth)


def assert_right(found: NDArray[np.float32], product: Product, ending: int) -> None:
    wanted = product.sums.copy()
    wanted[: product.count, :PANEL] = product.wanted(ending)
    assert np.array_equal(found.view(np.uint32), wanted.view(np.uint32))


class ColumnProduct(Product):
    """The same with the rows in columns, and poison beside the sums of whole strips."""

    def __init__(self, count: int, depth: int) -> None:
        strip_columns = GEOMETRY.column_strip
        super().__init__(-(-count // strip_columns) * strip_columns, depth, seed=2)
        self.asked = count

    def found(self) -> NDArray[np.float32]:
        columns, panel, sums = self.rows.T.copy(), self.panel.copy(), self.sums.copy()
        arrays = (columns, columns.shape[1], panel, panel.shape[1], sums, sums.shape[1])
        native("headwise_multiply_columns")(self.asked, *arrays, self.depth)
        return sums

    def wanted_beside_poison(self) -> NDArray[np.float32]:
        wanted = self.sums.copy()
        before = self.sums[: self.count, :PANEL]
        wanted[: self.count, :PANEL] = before + self.chain(np.zeros_like(before))
        return wanted


endings = pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)


@endings
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("rows", GEOMETRY.strips)
def test_a_strip_is_one_chain_of_fused_multiply_adds(rows: int, depth: int, ending: int) -> None:
    product = Product(rows, depth)
    sums = product.sums.copy()
    strip(rows)(*product.operands(ending, sums))
    assert_right(sums, product, ending)


@endings
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("rows", range(1, DESK_ROWS + 1))
def test_any_number_of_rows_is_made_of_strips(rows: int, depth: int, ending: int) -> None:
    product = Product(rows, depth, seed=1)
    sums = product.sums.copy()
    native("headwise_multiply")(rows, *product.operands(ending, sums))
    assert_right(sums, product, ending)


@pytest.mark.parametrize("depth", [*DEPTHS, BLOCK_ROWS])
@pytest.mark.parametrize("count", sorted({0, 1, 3, 4, 5, 15, 16, 17, 31, 100, STRETCH - 1, STRETCH}))
def test_columns_are_one_chain_that_is_added_to_what_was_there(count: int, depth: int) -> None:
    product = ColumnProduct(count, depth)
    assert np.array_equal(product.found().view(np.uint32), product.wanted_beside_poison().view(np.uint32))


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_in_one_column_stays_in_it(odd: float) -> None:
    product = ColumnProduct(2 * GEOMETRY.column_strip, 17)
    product.rows[5, 4] = odd
    sums = product.found()[: product.count, :PANEL]
    assert not np.isfinite(sums[5]).any()
    assert np.isfinite(np.delete(sums, 5, 0)).all()


def test_strips_of_columns_divide_a_stretch() -> None:
    assert [STRETCH % geometry.column_strip for geometry in GEOMETRIES.values()] == [0] * len(GEOMETRIES)


def test_no_rows_touch_nothing() -> None:
    product = Product(1, 3)
    sums = product.sums.copy()
    native("headwise_multiply")(0, *product.operands(FRESH, sums))
    assert np.array_equal(sums.view(np.uint32), product.sums.view(np.uint32))


@pytest.mark.parametrize("rows", GEOMETRY.strips)
def test_against_float64(rows: int) -> None:
    product = Product(rows, 257)
    sums = product.sums.copy()
    strip(rows)(*product.operands(FRESH, sums))
    left, right = (
        each.astype(np.float64) for each in (product.rows[:rows, :257], product.panel[:257, :PANEL])
    )
    bound = 257 * np.finfo(np.float32).eps / 2 * (np.abs(left) @ np.abs(right))
    assert (np.abs(sums[:rows, :PANEL] - left @ right) <= bound).all()


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("rows", GEOMETRY.strips)
def test_what_is_not_finite_in_one_row_stays_in_it(rows: int, odd: float) -> None:
    product = Product(rows, 17)
    product.rows[rows - 1, 5] = odd
    sums = product.sums.copy()
    strip(rows)(*product.operands(FRESH, sums))
    assert not np.isfinite(sums[rows - 1, :PANEL]).any()
    assert np.isfinite(sums[: rows - 1, :PANEL]).all()


def exactly(left: np.float32, right: np.float32, addend: np.float32) -> np.float32:
    """Return the nearest float32, halves to even, by fractions."""
    total = Fraction(float(left)) * Fraction(float(right)) + Fraction(float(addend))
    near = np.float32(float(total))
    candidates = [near, *(np.nextafter(near, np.float32(side)) for side in (-np.inf, np.inf))]
    return min(
        candidates, key=lambda each: (abs(Fraction(float(each)) - total), int(each.view(np.uint32)) & 1)
    )


def test_the_emulation_of_a_fused_multiply_add_is_exact() -> None:
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((2, 3000)).astype(np.float32)
    near = -(left.astype(np.float64) * right).astype(np.float32)  # cancels but for the rounding
    far = (rng.standard_normal(3000) * 2.0 ** rng.integers(-40, 40, 3000)).astype(np.float32)
    # 1 + 2^-23 and a product just short of half its last bit: float64 holds no more than the half itself.
    part = rng.integers(1, 2**6, 3000) * 2.0**-23
    short, beside = (2.0**-24 * (1 + part)).astype(np.float32), (1 - part).astype(np.float32)
    odd = (1 + (2 * rng.integers(0, 2**22, 3000) + 1) * 2.0**-23).astype(np.float32)
    groups = [(left, right, near), (left, right, far), (short, beside, odd), (short, -beside, odd)]
    for group in groups:
        found = fma(*group)
        assert [*found] == [exactly(*each) for each in zip(*group, strict=True)]
