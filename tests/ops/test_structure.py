"""Masks as integers: what comes back sees the same keys."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from headwise.masks import (
    Causal,
    CausalFrom,
    Intersection,
    Intervals,
    Lengths,
    Packed,
    Prefix,
    Sizes,
    StructuredMask,
    Window,
    resolve,
)
from headwise.ops import structure

SIZES = Sizes(batch=2, num_heads=3, seq_len=5, kv_len=7)


@dataclass(frozen=True)
class Odd(StructuredMask):
    """A kind of mask that headwise knows nothing of: the rows of each batch element see one key more each."""

    def intervals(self, batch: int, seq_len: int, kv_len: int) -> Intervals:
        start = np.arange(batch)[:, None] + np.zeros(seq_len, np.int64)
        return Intervals(start, start + 2 * np.arange(seq_len))


class LooksBack(Causal):
    """A mask that is a `Causal` and means something else."""

    def intervals(self, batch: int, seq_len: int, kv_len: int) -> Intervals:
        seen = super().intervals(batch, seq_len, kv_len)
        return Intervals(seen.start, seen.stop - 1)


MASKS: dict[str, Any] = {
    "nothing": Intersection(()),
    "causal": Causal(),
    "causal upper left": Causal("upper_left"),
    "window": Window(2, 1),
    "window upper left": Window(1, None, "upper_left"),
    "window of huge sides": Window(10**30, 2**63),
    "lengths": Lengths([0, 4]),
    "lengths left": Lengths([1, 6], "left"),
    "packed": Packed([1, 0, 3], key_lengths=[2, 1, 4]),
    "prefix": Prefix(3),
    "prefixes upper left": Prefix([1, 6], "upper_left"),
    "causal from": CausalFrom([2, 0]),
    "causal from, all given": CausalFrom([2, 0], counts=[4, 5], window=3),
    "odd": Odd(),
    "of a derived class": LooksBack(),
    "many": Causal() & Lengths([5, 7]) & Window(3) & Odd(),
}


def seen(mask: Any, sizes: Sizes = SIZES) -> np.ndarray[Any, Any]:
    shape = (sizes.batch, sizes.seq_len, sizes.kv_len)
    return np.broadcast_to(resolve(mask, sizes).intervals.visible(sizes.kv_len), shape)


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_comes_back_from_its_integers(name: str) -> None:
    numbers = structure.encoded(MASKS[name].parts, SIZES)
    assert {type(number) for number in numbers} == {int}
    assert max(numbers) < 2**63
    np.testing.assert_array_equal(seen(Intersection(structure.decoded(numbers))), seen(MASKS[name]))


def test_square_packed_masks_come_back_too() -> None:
    square = Sizes(2, 3, 5, 5)
    numbers = structure.encoded([Packed([2, 3])], square)
    np.testing.assert_array_equal(seen(structure.decoded(numbers)[0], square), seen(Packed([2, 3]), square))


@pytest.mark.parametrize("name", MASKS)
def test_repeated_masks_stand_behind_themselves(name: str) -> None:
    numbers = structure.repeated(structure.repeated(structure.encoded(MASKS[name].parts, SIZES), 3), 2)
    found = seen(Intersection(structure.decoded(numbers)), Sizes(12, 3, 5, 7))
    np.testing.assert_array_equal(found, np.tile(seen(MASKS[name]), (6, 1, 1)))
