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

_TOGETHER = 2
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
    together = builder.mul(builder.udiv(count, integer(_TOGETHER)), integer(_TOGETHER))
    for first, last, rows in ((integer(0), together, _TOGETHER), (together, count, 1)):
        with counting(builder, first, last, rows) as row:
            places = [builder.add(row, integer(ahead)) for ahead in range(rows)]
            lines = [lanes.at(scores, builder.mul(place, stride)) for place in places]
            _weigh_rows(lanes, lines, start, stop, [lanes.at(ledger, place) for place in places])


def _weigh_rows(
    lanes: Lanes, lines: list[ir.Value], start: ir.Value, stop: ir.Value, entries: list[ir.Value]
) -> None:
    """Weigh some rows side by side: each is a chain of its own, so the processor can overlap them."""
    builder = lanes.builder
    log2_e = lanes.constant(LOG2_E)
    maxima = _maxima(lanes, lines, start, stop)
    shifts = [finite_shift(lanes, maximum) for maximum in maxima]
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
    for entry, maximum, row in zip(entries, maxima, sums, strict=True):
        found = in_halves(lanes, [builder.load(total) for total in row], builder.fadd)
        builder.store(found, lanes.at(entry, TILE_SUM))
        builder.store(builder.extract_element(maximum, ir.Constant(INT32, 0)), lanes.at(entry, TILE_MAXIMUM))


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


def _maxima(lanes: Lanes, lines: list[ir.Value], start: ir.Value, stop: ir.Value) -> list[ir.Value]:
    """Return the largest score of each row in every lane; -inf for no keys, NaN passed over."""
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
    loaded = [[builder.load(found) for found in row] for row in largest]
    return [lanes.splat(in_halves(lanes, row, lanes.larger)) for row in loaded]


def in_halves(
    lanes: Lanes, parts: list[ir.Value], joined: Callable[[ir.Value, ir.Value], ir.Value]
) -> ir.Value:
    """Return all lanes of a panel joined, each half with the other until one number is left."""
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [joined(left, right) for left, right in zip(parts[:half], parts[half:], strict=True)]
    (found,) = parts
    width = lanes.lanes
    while width > 1:
        width //= 2
        low, high = (lanes.shuffle(found, found, list(range(first, first + width))) for first in (0, width))
        found = joined(low, high)
    return lanes.builder.extract_element(found, ir.Constant(INT32, 0))
