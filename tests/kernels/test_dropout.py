"""Dropout as it is emitted: Philox by its published answers, and the weights by the rule, bit for bit."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from llvmlite import ir
from numpy.typing import NDArray

from headwise.kernels.dropout import philox as emit_philox
from headwise.kernels.dropout import random_words
from headwise.kernels.emission import INT32, INT64, integer, vector
from headwise.kernels.geometry import GEOMETRIES, PANEL, TILE
from headwise.kernels.philox import threshold_of

from .emitted import compiled, native
from .philox_by_hand import KNOWN, philox, word_of

HEADS, POSITIONS = np.array([1, 0, 5, 2, 1]), np.array([0, 2**31 + 3, 7, 997, 1])
SEEDS = [0, 7, 2**32 + 7, 2**63 - 1, -1, -(2**40)]
WIDTHS = [geometry.lanes for geometry in GEOMETRIES.values()]
WORD = 2**32


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_the_definition_gives_the_published_answers(
    counter: list[int], key: list[int], words: list[int]
) -> None:
    assert philox(counter, key) == words


@cache
def words_of_counters(lanes: int) -> Callable[..., None]:
    """Return what emits the words of `lanes / 2` counters that lie word by word in memory."""
    kind = vector(lanes // 2, INT64)

    def emit(
        builder: ir.IRBuilder, counters: ir.Value, low: ir.Value, high: ir.Value, target: ir.Value
    ) -> None:
        def place(pointer: ir.Value, number: int) -> ir.Value:
            return builder.bitcast(builder.gep(pointer, [integer(number * lanes // 2)]), kind.as_pointer())

        given = []
        for number in range(4):
            word = builder.load(place(counters, number))
            word.align = 8
            given.append(word)
        for number, word in enumerate(emit_philox(builder, given, (low, high))):
            builder.store(word, place(target, number)).align = 8

    emit.__name__ = f"words_of_{lanes // 2}_counters"
    return emit


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_the_published_answers_are_given_beside_other_counters(
    lanes: int, counter: list[int], key: list[int], words: list[int]
) -> None:
    pointer = INT64.as_pointer()
    run = compiled(words_of_counters(lanes), (pointer, INT64, INT64, pointer))
    others = np.random.default_rng(1).integers(0, WORD, (4, lanes // 2))
    for lane in range(lanes // 2):
        counters, found = others.copy(), np.zeros_like(others)
        counters[:, lane] = counter
        # What lies in the high halves must not matter.
        run(counters + np.int64(77 << 32), key[0] + (5 << 32), key[1], found)
        found %= WORD
        assert found[:, lane].tolist() == words
        beside = (lane + 1) % (lanes // 2)
        assert found[:, beside].tolist() == philox(counters[:, beside].tolist(), key)


@cache
def words_in_order(lanes: int) -> Callable[..., None]:
    """Return what emits the words for `2 * lanes` keys."""

    def emit(builder: ir.IRBuilder, *arguments: ir.Value) -> None:
        *given, target = arguments
        for place, words in enumerate(random_words(builder, lanes, given[:3], given[3:])):
            at = builder.gep(target, [integer(place * lanes)])
            builder.store(words, builder.bitcast(at, words.type.as_pointer())).align = 4

    emit.__name__ = f"words_in_order_{lanes}"
    return emit


@pytest.mark.parametrize("lanes", WIDTHS)
def test_the_words_come_in_the_order_of_the_keys_however_wide_the_registers(lanes: int) -> None:
    run = compiled(words_in_order(lanes), (*[INT64] * 5, INT32.as_pointer()))
    for counter, query, head in ((0, 0, 0), (64, 997, 5), (WORD - 1, WORD - 1, WORD - 1)):
        found = np.zeros(2 * lanes + 1, np.uint32)
        run(counter, query, head, 3, 2**31 + 1, found)
        expected = [
            philox(((counter + ahead) % WORD, query, head, 0), (3, 2**31 + 1)) for ahead in range(lanes // 2)
        ]
        assert found.tolist() == [*np.ravel(expected), 0]


def dropped(
    weights: NDArray[np.float32],
    *,
    rows: int = 4,
    start: int = 0,
    stop: int = TILE,
    tile: int = 0,
    seed: int = 7,
    dropout: float = 0.5,
) -> NDArray[np.float32]:
    """Return weights `[rows and more, TILE]` after dropout, all of them or those asked for."""
    found = weights.copy()
    growth = 1.0 / (1.0 - dropout)
    native("headwise_drop_weights")(
        rows, found, start, stop, tile, HEADS, POSITIONS, 6, seed, threshold_of(dropout), growth
    )
    return found


def by_the_rule(
    weights: NDArray[np.float32], *, tile: int = 0, seed: int = 7, dropout: float = 0.5
) -> NDArray[np.float32]:
    """Return all weights after dropout, one by one."""
    found = np.zeros_like(weights)
    for row, key in np.ndindex(*weights.shape):
        word = word_of(seed, head=6 + int(HEADS[row]), query=int(POSITIONS[row]), key=tile + key)
        if word >= round(dropout * WORD):
            found[row, key] = weights[row, key] * np.float32(1 / (1 - dropout))
    return found


def some_weights() -> NDArray[np.float32]:
    return np.random.default_rng(3).random((len(HEADS), TILE), np.float32) + np.float32(0.5)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.999])
def test_every_weight_is_decided_by_the_rule(seed: int, dropout: float) -> None:
    weights = some_weights()
    for tile in (0, TILE, 5 * TILE, 2**34 - TILE):
        found = dropped(weights, rows=len(HEADS), tile=tile, seed=seed, dropout=dropout)
        np.testing.assert_array_equal(found, by_the_rule(weights, tile=tile, seed=seed, dropout=dropout))


@pytest.mark.parametrize(("start", "stop"), [(0, 16), (16, 48), (48, 256), (240, 256), (32, 112), (64, 64)])
@pytest.mark.parametrize("rows", [0, 1, 3, 4])
def test_nothing_but_the_panels_and_rows_asked_for_is_touched(start: int, stop: int, rows: int) -> None:
    assert start % PANEL == stop % PANEL == 0
    weights = some_weights()
    expected = weights.copy()
    expected[:rows, start:stop] = by_the_rule(weights)[:rows, start:stop]
    np.testing.assert_array_equal(dropped(weights, rows=rows, start=start, stop=stop), expected)


def test_a_weight_that_is_nan_stays_so_or_is_dropped() -> None:
    weights = np.full((len(HEADS), TILE), np.nan, np.float32)
    found = dropped(weights, rows=len(HEADS))
    kept = by_the_rule(some_weights()) != 0
    assert 0 < kept.sum() < kept.size
    np.testing.assert_array_equal(found, np.where(kept, np.float32(np.nan), np.float32(0)))


@pytest.mark.parametrize(
    ("dropout", "threshold"),
    [
        (0.0, 0),
        (0.25, 2**30),
        (0.5, 2**31),
        (1 / 3, 1431655765),
        (2.0**-33 * 0.9, 0),
        (2.0**-32, 1),
        (1 - 2.0**-40, WORD - 1),
    ],
)
def test_the_threshold_is_the_share_of_all_words(dropout: float, threshold: int) -> None:
    assert threshold_of(dropout) == threshold


def test_a_word_at_the_threshold_is_kept_and_the_next_one_below_it_dropped() -> None:
    weights = some_weights()
    for row, key in ((0, 0), (3, 77), (4, 255)):
        word = word_of(7, head=6 + int(HEADS[row]), query=int(POSITIONS[row]), key=key)
        for threshold, is_kept in ((word, True), (word + 1, False)):
            found = dropped(weights, rows=len(HEADS), dropout=threshold / WORD)
            assert (found[row, key] != 0) == is_kept


def test_the_largest_word_is_kept_whatever_the_dropout() -> None:
    """Of 5 x 256 weights all are dropped at such a share; the vector code must not take 2^32 for 0."""
    weights = some_weights()
    assert (dropped(weights, rows=len(HEADS), dropout=1 - 2.0**-40) == 0).all()
