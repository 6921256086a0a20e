"""The products for few rows: the bits of the micro-kernel, from keys and values as they lie in memory."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from headwise.kernels.geometry import PANEL
from headwise.kernels.host import GEOMETRY
from headwise.kernels.packing import BFLOAT16, FLOAT16, FLOAT32
from headwise.kernels.products import ADDED, FRESH

from .emitted import native, strip

KINDS = {FLOAT32: torch.float32, BFLOAT16: torch.bfloat16, FLOAT16: torch.float16}
ROWS = (1, 3, 4, 5, 8, 24)
PANELS = 3
POISON = np.float32(-7.5)

kinds = pytest.mark.parametrize("kind", KINDS, ids=["float32", "bfloat16", "float16"])
gaps = pytest.mark.parametrize("gap", [0, 3])
counts = pytest.mark.parametrize("count", ROWS)


def lines(kind: int, width: int, gap: int) -> torch.Tensor:
    """Return the keys or values of whole panels, `gap` numbers that are not finite behind each."""
    generator = torch.Generator().manual_seed(width)
    found = torch.randn(PANELS * PANEL, width + gap, generator=generator)
    found[:, width:] = torch.nan
    return found.to(KINDS[kind])


def numbers(*shape: int) -> NDArray[np.float32]:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(shape[0])).numpy()


def streamed(
    name: str,
    kind: int,
    *,
    factors: NDArray[np.float32],
    given: torch.Tensor,
    width: int,
    sums: NDArray[np.float32],
    keys_ahead: int = 2 * PANEL,
) -> None:
    memory = (given if given.dtype == torch.float32 else given.view(torch.int16)).numpy()
    stride = given.stride(0) * given.element_size()
    native(name)(
        kind, PANELS, len(factors), factors, factors.shape[1], memory, stride, width, sums, sums.shape[1],
        keys_ahead,
    )  # fmt: skip


def multiplied(
    ending: int, factors: NDArray[np.float32], panel: NDArray[np.float32], sums: NDArray[np.float32]
) -> None:
    """Put the micro-kernel's product, row by row, into `[rows, PANEL]`."""
    for row in range(len(factors)):
        strip(1)(ending, factors[row], 0, panel, PANEL, sums[row], 0, factors, len(panel))


@kinds
@gaps
@counts
@pytest.mark.parametrize("width", [GEOMETRY.lanes, 80, 128])
def test_scores_are_those_of_the_micro_kernel(kind: int, gap: int, count: int, width: int) -> None:
    keys, queries = lines(kind, width, gap), numbers(count, width + 5)
    found = np.full((count + 1, PANELS * PANEL + 7), POISON)
    found[:count, : PANELS * PANEL] = 0.0
    streamed("headwise_score_streamed", kind, factors=queries, given=keys, width=width, sums=found[:count])
    wanted = np.full_like(found, POISON)
    for first in range(0, PANELS * PANEL, PANEL):
        panel = np.ascontiguousarray(keys[first : first + PANEL, :width].float().numpy().T)
        scores = np.zeros((count, PANEL), np.float32)
        multiplied(FRESH, queries, panel, scores)
        wanted[:count, first : first + PANEL] = scores
    assert np.array_equal(found, wanted)


@kinds
@gaps
@counts
@pytest.mark.parametrize("width", [PANEL, 80, 128, 240])
def test_sums_are_those_of_the_micro_kernel(kind: int, gap: int, count: int, width: int) -> None:
    values, weights = lines(kind, width, gap), numbers(count, PANELS * PANEL + 5)
    found = np.full((count + 1, width + 7), POISON)
    found[:count, :width] = numbers(count, width)
    wanted = found.copy()
    streamed("headwise_sum_streamed", kind, factors=weights, given=values, width=width, sums=found[:count])
    for column in range(0, width, PANEL):
        panel = np.ascontiguousarray(values[:, column : column + PANEL].float().numpy())
        sums = np.ascontiguousarray(wanted[:count, column : column + PANEL])
        multiplied(ADDED, weights[:, : PANELS * PANEL], panel, sums)
        wanted[:count, column : column + PANEL] = sums
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize("name", ["headwise_score_streamed", "headwise_sum_streamed"])
def test_what_is_asked_for_ahead_need_not_be_there(name: str) -> None:
    given, width = lines(FLOAT32, 64, 0), 64
    factors = numbers(4, PANELS * PANEL + width)
    near, far = (np.zeros((4, PANELS * PANEL + width), np.float32) for _ in range(2))
    for sums, ahead in ((near, PANEL), (far, 2**40)):
        streamed(name, FLOAT32, factors=factors, given=given, width=width, sums=sums, keys_ahead=ahead)
    assert np.array_equal(near, far)
