"""exp2 and tanh as they are emitted, against float64."""

import numpy as np
import pytest
from numpy.typing import NDArray

from headwise.kernels.exponential import exp2, tanh

from .emitted import elementwise

SPECIAL = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf] + [1.0] * 10, dtype=np.float32)


def units_off(found: NDArray[np.float32], exact: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the errors in units in the last place of the right answer."""
    return np.abs(found - exact) / np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)


def every_float(low: float, high: float, step: int = 1) -> NDArray[np.float32]:
    """Return each float32, or each `step`-th, between two of one sign, as many as fill whole panels."""
    first, last = sorted(int(np.float32(end).view(np.uint32)) for end in (low, high))
    bits = np.arange(first, last + 1, step, dtype=np.uint32)
    return bits[: bits.size // 16 * 16].view(np.float32)


@pytest.mark.parametrize(
    "powers",
    [
        np.linspace(-126, 127, 4_000_000, dtype=np.float32),
        every_float(0.25, 0.5),  # all of them up to where the next integer is nearer, and beyond
        every_float(0.5, 1.0, 3),
        every_float(-0.5, -0.25),
        every_float(-0.5, -1.0, 3),
        every_float(1e-30, 0.25, 401),
        every_float(-1e-30, -0.25, 401),
    ],
    ids=["all", "quarters", "halves", "negative quarters", "negative halves", "small", "small negative"],
)
def test_exp2_is_within_two_units_in_the_last_place(powers: NDArray[np.float32]) -> None:
    assert units_off(elementwise(exp2, powers), np.exp2(powers.astype(np.float64))).max() <= 1.0


def test_exp2_of_an_integer_is_exact() -> None:
    powers = np.arange(-126, 114 + 16, dtype=np.float32)[:240]
    assert powers[-1] == 113
    assert np.array_equal(elementwise(exp2, powers), np.ldexp(np.float32(1), powers.astype(np.int32)))
    top = np.arange(112, 128, dtype=np.float32)
    assert np.array_equal(elementwise(exp2, top), np.ldexp(np.float32(1), top.astype(np.int32)))


def test_exp2_of_zero_nan_and_minus_infinity() -> None:
    found = elementwise(exp2, SPECIAL)
    assert found[0] == found[1] == 1.0
    assert np.isnan(found[2:4]).all()
    assert found[5] == 0.0
    assert not np.signbit(found[5])


def test_exp2_is_zero_below_the_normal_numbers() -> None:
    low = np.concatenate(
        [
            np.nextafter(np.float32(-126), np.float32(-200), dtype=np.float32)[None],
            np.linspace(-126.5, -400, 1_000_000, dtype=np.float32),
            -np.geomspace(400, 3e38, 15 + 16 * 1000, dtype=np.float32),
        ]
    )
    found = elementwise(exp2, low)
    assert np.array_equal(found, np.zeros_like(low))
    assert not np.signbit(found).any()


@pytest.mark.parametrize("sign", [1, -1], ids=["positive", "negative"])
@pytest.mark.parametrize(
    "sizes",
    [
        every_float(0.25, 1.0),
        every_float(1.0, 16.0, 13),
        every_float(1e-18, 0.25, 401),
        every_float(16.0, 1e30, 401),
    ],
    ids=["around the seam", "large", "small", "one"],
)
def test_tanh_is_within_two_units_in_the_last_place(sizes: NDArray[np.float32], sign: int) -> None:
    numbers = sign * sizes
    assert units_off(elementwise(tanh, numbers), np.tanh(numbers.astype(np.float64))).max() <= 2.0


def test_tanh_of_zero_nan_and_infinity() -> None:
    found = elementwise(tanh, SPECIAL)
    assert found[0] == found[1] == 0.0
    assert np.isnan(found[2:4]).all()
    assert (found[4], found[5]) == (1.0, -1.0)
