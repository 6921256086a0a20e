"""Bias and mask as they are emitted, bit for bit against NumPy, for lines of any strides."""

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from headwise.kernels.geometry import PANEL, TILE

from .emitted import native

STEPS = [1, 0, 3, -1]
RANGES = [(0, TILE), (PANEL, 7 * PANEL), (0, 77), (48, 49), (16, 16)]
steps = pytest.mark.parametrize("step", STEPS)
ranges = pytest.mark.parametrize(("start", "stop"), RANGES)
HEADS, POSITIONS = np.array([1, 0, 1, 2]), np.array([0, 2, 1, 2])


def lines(kind: type[np.generic], step: int, seed: int) -> NDArray[Any]:
    """Return `[heads, positions, TILE]` whose last axis lies `step` apart: numbers, or 0 and others."""
    random = np.random.default_rng(seed)
    memory = random.standard_normal((3, 3, TILE * max(abs(step), 1))).astype(np.float32)
    if kind is np.uint8:
        memory = random.integers(0, 3, memory.shape).astype(np.uint8)
    else:
        memory[random.random(memory.shape) < 0.1] = -np.inf
    return np.broadcast_to(memory[..., :1], (3, 3, TILE)) if step == 0 else memory[..., ::step]


def given(tensor: NDArray[Any]) -> tuple[Any, ...]:
    """Return a tensor of lines as a function gets it."""
    apart = [stride // tensor.itemsize for stride in tensor.strides]
    return (tensor.ctypes.data, HEADS, POSITIONS, *apart)


def scores() -> NDArray[np.float32]:
    """Return scores of four rows, some not finite, before poison."""
    found = np.random.default_rng(5).standard_normal((5, TILE)).astype(np.float32)
    found[1, ::5], found[2, ::7] = np.nan, np.inf
    return found


@steps
@ranges
@pytest.mark.parametrize("rows", [1, 4])
def test_a_bias_is_added_less_the_shift_and_minus_infinity_hides(
    step: int, start: int, stop: int, rows: int
) -> None:
    bias, found, shifts = lines(np.float32, step, 1), scores(), np.array([0.5, -3, 1e6, 0], np.float32)
    wanted, keys = found.copy(), slice(start, stop)
    for row in range(rows):
        added = bias[HEADS[row], POSITIONS[row], keys]
        with np.errstate(invalid="ignore"):
            total = wanted[row, keys] + (added - shifts[row])
        wanted[row, keys] = np.where(added == -np.inf, np.float32(-np.inf), total)
    native("headwise_add_bias")(rows, found, *given(bias), shifts, start, stop)
    np.testing.assert_array_equal(found, wanted)


@steps
@ranges
@pytest.mark.parametrize("rows", [1, 4])
def test_what_the_mask_hides_is_minus_infinity(step: int, start: int, stop: int, rows: int) -> None:
    mask, found = lines(np.uint8, step, 2), scores()
    wanted, keys = found.copy(), slice(start, stop)
    for row in range(rows):
        wanted[row, keys][mask[HEADS[row], POSITIONS[row], keys] == 0] = -np.inf
    native("headwise_hide_masked")(rows, found, *given(mask), start, stop)
    np.testing.assert_array_equal(found, wanted)


@steps
@pytest.mark.parametrize("rows", [1, 3, 4])
@pytest.mark.parametrize("end", [TILE, 77, 1000])
@pytest.mark.parametrize(("first", "last"), [(0, 0), (0, 255), (40, 41), (63, 64), (17, 70), (9, 5)])
def test_a_strip_is_narrowed_to_the_panels_that_the_mask_shows(
    step: int, rows: int, end: int, first: int, last: int
) -> None:
    mask = np.array(lines(np.uint8, step, 3))
    mask[:] = 0
    shown = [(1, 0, first)] + [(HEADS[rows - 1], POSITIONS[rows - 1], last)] * (first <= last)
    for place in shown if first <= last else []:
        mask[place] = 2
    strided = np.zeros((3, 3, TILE * max(abs(step), 1)), np.uint8)[..., :: step or 1][..., :TILE]
    strided[:] = mask
    if step == 0:
        strided = np.broadcast_to(mask[..., :1], mask.shape)
    start, stop, partial = np.array([0]), np.array([TILE]), np.array([0])
    native("headwise_narrow_strip")(rows, *given(strided), end, start, stop, partial)
    seen = strided[HEADS[:rows], POSITIONS[:rows], : min(end, TILE)] != 0
    keys = np.flatnonzero(seen.any(0))
    if keys.size:
        assert (start[0], stop[0]) == (keys[0] // PANEL * PANEL, (keys[-1] // PANEL + 1) * PANEL)
    else:
        assert start[0] >= stop[0]
    assert partial[0] == (not seen.all())


def test_a_strip_stays_partial_though_the_mask_hides_nothing() -> None:
    mask = np.full((3, 3, TILE), 255, np.uint8)
    start, stop, partial = np.array([PANEL]), np.array([5 * PANEL]), np.array([1])
    native("headwise_narrow_strip")(4, *given(mask), TILE, start, stop, partial)
    assert (start[0], stop[0], partial[0]) == (PANEL, 5 * PANEL, 1)


@steps
@pytest.mark.parametrize("mask_step", [None, *STEPS])
@pytest.mark.parametrize(("start", "stop"), [*RANGES, (3, 250), (9, 4)])
def test_the_largest_bias_that_is_shown_is_found_wherever_it_lies(
    step: int, mask_step: int | None, start: int, stop: int
) -> None:
    bias = lines(np.float32, step, 4)[1, 1]
    shown = np.ones(TILE, np.uint8) if mask_step is None else lines(np.uint8, mask_step, 6)[1, 1]
    for largest in range(start, max(stop, start + 1), 13):
        if step != 0:
            bias[largest], bias[(largest + 1) % TILE] = 100.0 + largest, np.nan
        kept = bias[start:stop][(shown[start:stop] != 0) & ~np.isnan(bias[start:stop])]
        found = np.full(2, 7, np.float32)
        place = (bias.ctypes.data, bias.strides[0] // 4)
        if mask_step is None:
            native("headwise_largest_bias")(*place, start, stop, found)
        else:
            its = (shown.ctypes.data, shown.strides[0])
            native("headwise_largest_shown_bias")(*place, *its, start, stop, found)
        assert found.tolist() == [kept.max(initial=-np.inf), 7]


@contextmanager
def before_a_page_that_nobody_may_read(values: NDArray[Any]) -> Iterator[int]:
    """Return where the values lie whose last one ends where a page begins that no access is allowed to."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 3 * page)
    view = (ctypes.c_char * len(memory)).from_buffer(memory)
    base, protect = ctypes.addressof(view), ctypes.CDLL(None).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    assert protect(base + 2 * page, page, 0) == 0
    try:
        start = base + 2 * page - values.nbytes
        ctypes.memmove(start, values.ctypes.data, values.nbytes)
        yield start
    finally:
        protect(base + 2 * page, page, mmap.PROT_READ | mmap.PROT_WRITE)
        del view
        memory.close()


@pytest.mark.parametrize("count", [1, PANEL - 1, PANEL + 1, 77, TILE - 1])
def test_nothing_behind_the_last_key_is_read(count: int) -> None:
    zeros, found, result = np.zeros(4, np.int64), scores(), np.zeros(1, np.float32)
    shifts, start, stop, partial = np.zeros(4, np.float32), np.array([0]), np.array([TILE]), np.array([0])
    place = (zeros, zeros, 0, 0, 1)
    with (
        before_a_page_that_nobody_may_read(np.ones(count, np.float32)) as bias,
        before_a_page_that_nobody_may_read(np.ones(count, np.uint8)) as mask,
    ):
        native("headwise_add_bias")(4, found, bias, *place, shifts, 0, count)
        native("headwise_hide_masked")(4, found, mask, *place, 0, count)
        native("headwise_narrow_strip")(4, mask, *place, count, start, stop, partial)
        native("headwise_largest_bias")(bias, 1, 0, count, result)
        native("headwise_largest_shown_bias")(bias, 1, mask, 1, 0, count, result)
    assert result[0] == 1.0
