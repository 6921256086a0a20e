"""Dropout on the weights of a tile, as vector code; `philox` has the rule."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir
from numba import types

from headwise.kernels.emission import (
    INT32,
    INT64,
    FloatPointer,
    IntegerPointer,
    Lanes,
    counting,
    inner,
    integer,
    native,
    vector,
)
from headwise.kernels.geometry import PANEL, TILE
from headwise.kernels.host import GEOMETRY
from headwise.kernels.memory import Floats, moved
from headwise.kernels.philox import KEY_STEPS, MULTIPLIERS, ROUNDS, WORDS
from headwise.kernels.problem import Desk, Problem


@inner
def drop_rows(
    problem: Problem,
    desk: Desk,
    batch: int,
    first: int,
    rows: int,
    tile: int,
    start: int,
    stop: int,
    numbers: Floats,
) -> None:
    """Apply dropout to numbers `[rows of the desk, TILE]`: those of the rows `first .. first + rows`.

    tile is the position of the tile's first key, `start .. stop` are whole panels in it.
    """
    drop_weights(
        rows, moved(numbers, first * TILE), start, stop, tile, moved(desk.heads, first),
        moved(desk.positions, first), batch * problem.num_heads, problem.seed, problem.threshold,
        problem.growth,
    )  # fmt: skip


@native(
    types.int64, FloatPointer, types.int64, types.int64, types.int64, IntegerPointer, IntegerPointer,
    types.int64, types.int64, types.int64, types.float32,
)  # fmt: skip
def drop_weights(
    builder: ir.IRBuilder,
    count: ir.Value,
    weights: ir.Value,
    start: ir.Value,
    stop: ir.Value,
    tile: ir.Value,
    heads: ir.Value,
    positions: ir.Value,
    first_head: ir.Value,
    seed: ir.Value,
    threshold: ir.Value,
    growth: ir.Value,
) -> None:
    """Make dropped weights 0 and multiply the others by `growth`, in `count` rows `TILE` apart.

    - start, stop: keys of the tile, whole panels; tile: the position of its first key
    - heads, positions: of each row; first_head: what is added to its head, batch index * num_heads
    - threshold: below which word, unsigned, a weight is dropped
    """
    lanes = Lanes(builder, GEOMETRY.lanes)
    grown, below = lanes.splat(growth), _everywhere(builder, builder.trunc(threshold, INT32), lanes.lanes)
    keys = (seed, builder.lshr(seed, integer(32)))
    with counting(builder, integer(0), count, 1) as row:
        line = lanes.at(weights, builder.mul(row, integer(TILE)))
        query = builder.load(lanes.at(positions, row))
        head = builder.add(first_head, builder.load(lanes.at(heads, row)))
        with counting(builder, start, stop, 2 * lanes.lanes) as key:
            counter = builder.udiv(builder.add(tile, key), integer(WORDS))
            both = random_words(builder, lanes.lanes, (counter, query, head), keys)
            for place, words in zip((0, lanes.lanes), both, strict=True):
                at, kept = builder.add(key, integer(place)), builder.icmp_unsigned(">=", words, below)
                if place < PANEL:
                    _drop(lanes, line, at, kept, grown)
                else:
                    with builder.if_then(builder.icmp_signed("<", at, stop)):
                        _drop(lanes, line, at, kept, grown)


def _drop(lanes: Lanes, line: ir.Value, at: ir.Value, kept: ir.Value, grown: ir.Value) -> None:
    product = lanes.builder.fmul(lanes.load(line, at), grown)
    lanes.store(lanes.builder.select(kept, product, lanes.constant(0.0)), line, at)


def random_words(
    builder: ir.IRBuilder, lanes: int, counter: Sequence[ir.Value], keys: Sequence[ir.Value]
) -> list[ir.Value]:
    """Return the words for `2 * lanes` keys in their order, as two vectors of `lanes` 32-bit integers.

    counter: 64-bit integers, the first three words for the first four keys; keys: two such. What lies in
    their high halves means nothing. Counters are worked at side by side in 64-bit lanes, where a product has
    its room: `lanes / 2` of them, neighbours half as many lanes apart, as `_in_order` wants them.
    """
    count = lanes // 2
    ahead = ir.Constant(vector(count, INT64), [lane // 2 + lane % 2 * (count // 2) for lane in range(count)])
    words = [_everywhere(builder, word, count) for word in (*counter, integer(0))]
    words[0] = builder.add(words[0], ahead)
    return _in_order(builder, philox(builder, words, keys))


def philox(builder: ir.IRBuilder, counters: Sequence[ir.Value], keys: Sequence[ir.Value]) -> list[ir.Value]:
    """Return the four random words of counters side by side, in the low halves of their 64-bit lanes."""
    first, second, third, fourth = counters
    count = first.type.count
    for _ in range(ROUNDS):
        left, right = (
            builder.mul(_low_half(builder, word), _constant(count, multiplier))
            for word, multiplier in zip((first, third), MULTIPLIERS, strict=True)
        )
        over_left, over_right = (builder.lshr(each, _constant(count, 32)) for each in (left, right))
        scrambled = [_everywhere(builder, key, count) for key in keys]
        first = builder.xor(builder.xor(over_right, second), scrambled[0])
        third = builder.xor(builder.xor(over_left, fourth), scrambled[1])
        second, fourth = right, left
        keys = [builder.add(key, integer(step)) for key, step in zip(keys, KEY_STEPS, strict=True)]
    return [first, second, third, fourth]


def _in_order(builder: ir.IRBuilder, words: Sequence[ir.Value]) -> list[ir.Value]:
    """Return the words of all counters in the order of their keys, in two vectors of 32-bit lanes.

    Pairs of words are put side by side in the lane of their counter; even lanes then make the first vector
    and odd ones the second, which takes one instruction each.
    """
    count = words[0].type.count
    pairs = [
        builder.or_(_low_half(builder, word), builder.shl(following, _constant(count, 32)))
        for word, following in (words[:2], words[2:])
    ]
    found = []
    for odd in (0, 1):
        order = [lane // 2 * 2 + odd + lane % 2 * count for lane in range(count)]
        mixed = builder.shuffle_vector(*pairs, ir.Constant(vector(count, INT32), order))
        found.append(builder.bitcast(mixed, vector(2 * count, INT32)))
    return found


def _low_half(builder: ir.IRBuilder, words: ir.Value) -> ir.Value:
    return builder.and_(words, _constant(words.type.count, 2**32 - 1))


def _everywhere(builder: ir.IRBuilder, scalar: ir.Value, count: int) -> ir.Value:
    """Return a vector of `count` lanes with one integer in each."""
    empty = ir.Constant(vector(count, scalar.type), ir.Undefined)
    first = builder.insert_element(empty, scalar, ir.Constant(INT32, 0))
    return builder.shuffle_vector(first, empty, ir.Constant(vector(count, INT32), [0] * count))


def _constant(count: int, number: int) -> ir.Constant:
    return ir.Constant(vector(count, INT64), [number] * count)
