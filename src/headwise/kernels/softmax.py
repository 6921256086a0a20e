"""The softmax of one tile, in place, and what may happen to its scores before."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir
from numba import types
from numba.core import cgutils

from headwise.kernels.emission import INT32, FloatPointer, Lanes, counting, integer, native
from headwise.kernels.exponential import LOG2_E, exp2, tanh
from headwise.kernels.geometry import PANEL
from headwise.kernels.host import GEOMETRY
from headwise.kernels.ledger import TILE_MAXIMUM, TILE_SUM, finite_shift

_TOGETHER = 4
"""Rows whose largest scores and sums are found together."""

_SIDE_BY_SIDE = 2
"""Rows weighed side by side; measured: 0.76 cycles a score for one, 0.68 for two, 0.72 for four."""


@native(types.int64, FloatPointer, types.int64, types.int64, types.int64, FloatPointer)
def weigh_tile(
    builder: ir.IRBuilder,
    count: ir.Value,
    scores: ir.Value,
    stride: ir.Value,
    start: ir.Value,
    stop: ir.Value,
    ledger: ir.Value,
) -> None:
    """Make scores to `exp(score - maximum)`, and put each row's maximum and sum into the ledger.

    The keys `start .. stop` are whole panels. Sums go by place in the panel first and then in halves,
    whatever the width of the registers.
    """
    lanes = Lanes(builder, GEOMETRY.lanes)
    together = builder.and_(count, integer(-_TOGETHER))
    for first, last, rows in ((integer(0), together, _TOGETHER), (together, count, 1)):
        with counting(builder, first, last, rows) as row:
            places = [builder.add(row, integer(ahead)) for ahead in range(rows)]
            lines = [lanes.at(scores, builder.mul(place, stride)) for place in places]
            _weigh_rows(lanes, lines, start, stop, lanes.at(ledger, row))


def _weigh_rows(
    lanes: Lanes, lines: list[ir.Value], start: ir.Value, stop: ir.Value, entry: ir.Value
) -> None:
    """Weigh some rows; `entry` is the first one's in the ledger."""
    rows = len(lines)
    maxima = _joined_rows(lanes, _largest(lanes, lines, start, stop), lanes.larger)
    shifts = finite_shift(lanes, maxima)
    sums: list[list[ir.Value]] = []
    for first in range(0, rows, _SIDE_BY_SIDE):
        beside = range(first, min(first + _SIDE_BY_SIDE, rows))
        each = [lanes.shuffle(shifts, shifts, [row * lanes.lanes // rows] * lanes.lanes) for row in beside]
        sums += _weigh_side_by_side(lanes, [lines[row] for row in beside], each, start, stop)
    _store_each(lanes, rows, _joined_rows(lanes, sums, lanes.builder.fadd), lanes.at(entry, TILE_SUM))
    _store_each(lanes, rows, maxima, lanes.at(entry, TILE_MAXIMUM))


def _weigh_side_by_side(
    lanes: Lanes, lines: list[ir.Value], shifts: list[ir.Value], start: ir.Value, stop: ir.Value
) -> list[list[ir.Value]]:
    """Weigh rows in one loop: each is a chain of its own, so the processor can overlap them.

    Return the sums of each by place in the panel.
    """
    builder = lanes.builder
    log2_e = lanes.constant(LOG2_E)
    places = range(0, PANEL, lanes.lanes)
    sums = [[cgutils.alloca_once(builder, lanes.type) for _ in places] for _ in lines]
    for total in (total for row in sums for total in row):
        builder.store(lanes.constant(0.0), total)
    with counting(builder, start, stop, PANEL) as key:
        for line, shift, row in zip(lines, shifts, sums, strict=True):
            for place, total in zip(places, row, strict=True):
                at = builder.add(key, integer(place))
                below = builder.fsub(lanes.load(line, at), shift)
                weight = exp2(lanes, builder.fmul(below, log2_e))
                lanes.store(weight, line, at)
                builder.store(builder.fadd(builder.load(total), weight), total)
    return [[builder.load(total) for total in row] for row in sums]


@native(types.int64, FloatPointer, types.int64, types.int64, types.int64, types.float32)
def cap_scores(
    builder: ir.IRBuilder,
    count: ir.Value,
    scores: ir.Value,
    stride: ir.Value,
    start: ir.Value,
    stop: ir.Value,
    softcap: ir.Value,
) -> None:
    """Make scores to `softcap * tanh(score / softcap)`."""
    lanes = Lanes(builder, GEOMETRY.lanes)
    cap = lanes.splat(softcap)
    with counting(builder, integer(0), count, 1) as row:
        line = lanes.at(scores, builder.mul(row, stride))
        with counting(builder, start, stop, lanes.lanes) as key:
            ratio = builder.fdiv(lanes.load(line, key), cap)
            lanes.store(builder.fmul(cap, tanh(lanes, ratio)), line, key)


def _largest(lanes: Lanes, lines: list[ir.Value], start: ir.Value, stop: ir.Value) -> list[list[ir.Value]]:
    """Return the largest scores of each row by place in the panel; -inf for no keys, NaN passed over."""
    builder = lanes.builder
    places = range(0, PANEL, lanes.lanes)
    largest = [[cgutils.alloca_once(builder, lanes.type) for _ in places] for _ in lines]
    for found in (found for row in largest for found in row):
        builder.store(lanes.constant(float("-inf")), found)
    with counting(builder, start, stop, PANEL) as key:
        for line, row in zip(lines, largest, strict=True):
            for place, found in zip(places, row, strict=True):
                score = lanes.load(line, builder.add(key, integer(place)))
                builder.store(lanes.larger(score, builder.load(found)), found)
    return [[builder.load(found) for found in row] for row in largest]


def _joined_rows(
    lanes: Lanes, rows: list[list[ir.Value]], joined: Callable[[ir.Value, ir.Value], ir.Value]
) -> ir.Value:
    """Return one vector of what the panels of one, two or four rows come to, each half joined with the other.

    Row r's number stands at the beginning of the r-th of as many parts. Two rows share a vector from the
    first halves on, and an instruction joins both.
    """
    width = lanes.lanes
    parts = [_folded(row, joined) for row in rows]
    span = width  # of the lanes that are one row's
    while len(parts) > 1:
        span //= 2
        pairs = range(0, 2 * width, 2 * span)
        halves = [[pair + half + lane for pair in pairs for lane in range(span)] for half in (0, span)]
        parts = [
            joined(*(lanes.shuffle(left, right, half) for half in halves))
            for left, right in zip(parts[::2], parts[1::2], strict=True)
        ]
    (found,) = parts
    while span > 1:
        span //= 2
        swapped = [lane ^ span for lane in range(width)]
        found = joined(found, lanes.shuffle(found, found, swapped))
    return found


def _store_each(lanes: Lanes, rows: int, found: ir.Value, target: ir.Value) -> None:
    """Store the numbers that `_joined_rows` found, one behind the other."""
    firsts = lanes.shuffle(found, found, [row * lanes.lanes // rows for row in range(rows)])
    Lanes(lanes.builder, rows).store(firsts, target)


def in_halves(
    lanes: Lanes, parts: list[ir.Value], joined: Callable[[ir.Value, ir.Value], ir.Value]
) -> ir.Value:
    """Return all lanes of a panel joined, each half with the other until one number is left."""
    found = _joined_rows(lanes, [parts], joined)
    return lanes.builder.extract_element(found, ir.Constant(INT32, 0))


def _folded(parts: list[ir.Value], joined: Callable[[ir.Value, ir.Value], ir.Value]) -> ir.Value:
    """Return the vectors of a panel joined, each half with the other until one vector is left."""
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [joined(left, right) for left, right in zip(parts[:half], parts[half:], strict=True)]
    (found,) = parts
    return found
