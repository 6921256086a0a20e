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
    """Make scores to `exp2(score * log2(e) - maximum)`, and put each row's maximum and sum into the ledger.

    The keys `start .. stop` are whole panels. Sums go by place in the panel first and then in halves, whatever
    the width of the registers.
    """
    lanes = Lanes(builder, GEOMETRY.lanes)
    log2_e = lanes.constant(LOG2_E)
    with counting(builder, integer(0), count, 1) as row:
        line = lanes.at(scores, builder.mul(row, stride))
        maximum = _maximum(lanes, line, start, stop)
        maximum = builder.fmul(maximum, log2_e)
        shift = finite_shift(lanes, maximum)
        places = range(0, PANEL, lanes.lanes)
        sums = [cgutils.alloca_once(builder, lanes.type) for _ in places]
        for total in sums:
            builder.store(lanes.constant(0.0), total)
        with counting(builder, start, stop, PANEL) as key:
            for place, total in zip(places, sums, strict=True):
                at = builder.add(key, integer(place))
                power = lanes.fma(lanes.load(line, at), log2_e, builder.fneg(shift))
                weight = exp2(lanes, power)
                lanes.store(weight, line, at)
                builder.store(builder.fadd(builder.load(total), weight), total)
        entry = lanes.at(ledger, row)
        halves = _in_halves(lanes, [builder.load(total) for total in sums], builder.fadd)
        builder.store(halves, lanes.at(entry, TILE_SUM))
        first = builder.extract_element(maximum, ir.Constant(INT32, 0))
        builder.store(first, lanes.at(entry, TILE_MAXIMUM))


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


def _maximum(lanes: Lanes, line: ir.Value, start: ir.Value, stop: ir.Value) -> ir.Value:
    """Return the largest score of a row in every lane; -inf for no keys, NaN passed over."""
    builder = lanes.builder
    places = range(0, PANEL, lanes.lanes)
    largest = [cgutils.alloca_once(builder, lanes.type) for _ in places]
    for found in largest:
        builder.store(lanes.constant(float("-inf")), found)
    with counting(builder, start, stop, PANEL) as key:
        for place, found in zip(places, largest, strict=True):
            score = lanes.load(line, builder.add(key, integer(place)))
            builder.store(lanes.larger(score, builder.load(found)), found)
    return lanes.splat(_in_halves(lanes, [builder.load(found) for found in largest], lanes.larger))


def _in_halves(
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
