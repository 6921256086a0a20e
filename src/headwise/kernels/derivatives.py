"""The softmax backwards on a strip of rows: weights once more, and what the scores' gradients are.

With P the weights of a row, G the gradients of its weights and D the sum of P * G over its keys, the gradient
of a score is `P * (G - D)` (the Jacobian of the softmax times G).
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils

from headwise.kernels.emission import FloatPointer, Lanes, counting, integer, native
from headwise.kernels.exponential import LOG2_E, exp2
from headwise.kernels.geometry import TILE
from headwise.kernels.host import GEOMETRY
from headwise.kernels.softmax import in_halves
from headwise.kernels.ways import BACKWARD

_ROW_NUMBERS = (FloatPointer, FloatPointer, FloatPointer)


@native(types.int64, FloatPointer, FloatPointer, types.int64, types.int64, *_ROW_NUMBERS, group=BACKWARD)
def derive_rows(builder: ir.IRBuilder, count: ir.Value, *arguments: ir.Value) -> None:
    """Make scores to weights and the weights' gradients to the scores' gradients, both `[count, TILE]`.

    The arguments: scores, gradients, the keys `start .. stop`, and of each row its finite maximum, 1 / its
    sum, and D. A hidden key's score is -inf; its gradients are 0, whatever its value is.
    """
    _derive(builder, count, None, *arguments)


@native(types.int64, *(FloatPointer,) * 3, types.int64, types.int64, *_ROW_NUMBERS, group=BACKWARD)
def derive_dropped_rows(
    builder: ir.IRBuilder, count: ir.Value, factors: ir.Value, *arguments: ir.Value
) -> None:
    """Do what `derive_rows` does where the softmax is followed by factors, `[count, TILE]`.

    The scores become the weights times their factors.
    """
    _derive(builder, count, factors, *arguments)


def _derive(
    builder: ir.IRBuilder,
    count: ir.Value,
    factors: ir.Value | None,
    scores: ir.Value,
    gradients: ir.Value,
    start: ir.Value,
    stop: ir.Value,
    maxima: ir.Value,
    inverses: ir.Value,
    sums: ir.Value,
) -> None:
    lanes = Lanes(builder, GEOMETRY.lanes)
    with counting(builder, integer(0), count, 1) as row:
        first = builder.mul(row, integer(TILE))
        maximum, inverse, total = (
            lanes.splat(builder.load(lanes.at(array, row))) for array in (maxima, inverses, sums)
        )
        with counting(builder, start, stop, lanes.lanes) as key:
            place = builder.add(first, key)
            score = lanes.load(scores, place)
            below = builder.fsub(score, maximum)
            weight = builder.fmul(exp2(lanes, builder.fmul(below, lanes.constant(LOG2_E))), inverse)
            gradient, used = lanes.load(gradients, place), weight
            if factors is not None:
                factor = lanes.load(factors, place)
                is_kept = builder.fcmp_ordered("!=", factor, lanes.constant(0.0))
                gradient = builder.select(is_kept, builder.fmul(gradient, factor), lanes.constant(0.0))
                used = builder.fmul(weight, factor)
            product = builder.fmul(weight, builder.fsub(gradient, total))
            # A hidden value may be NaN, and times 0 would still be. One that is seen counts, however small
            # its weight.
            is_hidden = builder.fcmp_ordered("==", score, lanes.constant(float("-inf")))
            lanes.store(builder.select(is_hidden, lanes.constant(0.0), product), gradients, place)
            lanes.store(used, scores, place)


@native(types.int64, FloatPointer, FloatPointer, types.int64, types.int64, types.float32, group=BACKWARD)
def note_slopes(
    builder: ir.IRBuilder,
    count: ir.Value,
    scores: ir.Value,
    slopes: ir.Value,
    start: ir.Value,
    stop: ir.Value,
    softcap: ir.Value,
) -> None:
    """Write the derivative of `softcap * tanh(score / softcap)` at every score, `[count, TILE]`.

    With e = exp(-2 |score / softcap|) it is `4 e / (1 + e)^2`, which keeps its digits where tanh is near 1.
    """
    lanes = Lanes(builder, GEOMETRY.lanes)
    cap, one, zero = lanes.splat(softcap), lanes.constant(1.0), lanes.constant(0.0)
    with counting(builder, integer(0), count, 1) as row:
        first = builder.mul(row, integer(TILE))
        with counting(builder, start, stop, lanes.lanes) as key:
            place = builder.add(first, key)
            ratio = builder.fdiv(lanes.load(scores, place), cap)
            size = builder.select(builder.fcmp_ordered("<", ratio, zero), builder.fneg(ratio), ratio)
            power = exp2(lanes, builder.fmul(size, lanes.constant(-2 * LOG2_E)))
            root = builder.fadd(one, power)
            slope = builder.fdiv(builder.fmul(power, lanes.constant(4.0)), builder.fmul(root, root))
            lanes.store(slope, slopes, place)


@native(types.int64, FloatPointer, FloatPointer, types.int64, types.int64, group=BACKWARD)
def multiply_by_slopes(
    builder: ir.IRBuilder,
    count: ir.Value,
    gradients: ir.Value,
    slopes: ir.Value,
    start: ir.Value,
    stop: ir.Value,
) -> None:
    """Multiply gradients by slopes, both `[count, TILE]`; a gradient that is 0 stays it."""
    lanes = Lanes(builder, GEOMETRY.lanes)
    zero = lanes.constant(0.0)
    with counting(builder, integer(0), count, 1) as row:
        first = builder.mul(row, integer(TILE))
        with counting(builder, start, stop, lanes.lanes) as key:
            place = builder.add(first, key)
            gradient = lanes.load(gradients, place)
            product = builder.fmul(gradient, lanes.load(slopes, place))
            is_nothing = builder.fcmp_ordered("==", gradient, zero)
            lanes.store(builder.select(is_nothing, zero, product), gradients, place)


@native(types.int64, FloatPointer, FloatPointer, types.int64, FloatPointer, group=BACKWARD)
def multiply_rows(
    builder: ir.IRBuilder,
    count: ir.Value,
    left: ir.Value,
    right: ir.Value,
    width: ir.Value,
    sums: ir.Value,
) -> None:
    """Leave the sum of the products of each row of two arrays `[count, width]`."""
    wide, single = Lanes(builder, GEOMETRY.lanes), Lanes(builder, 1)
    whole = builder.and_(width, integer(-wide.lanes))
    with counting(builder, integer(0), count, 1) as row:
        first = builder.mul(row, width)
        parts = [(wide, integer(0), whole), (single, whole, width)]
        totals = []
        for lanes, start, stop in parts:
            total = cgutils.alloca_once(builder, lanes.type)
            builder.store(lanes.constant(0.0), total)
            with counting(builder, start, stop, lanes.lanes) as column:
                place = builder.add(first, column)
                product = lanes.fma(lanes.load(left, place), lanes.load(right, place), builder.load(total))
                builder.store(product, total)
            totals.append(in_halves(lanes, [builder.load(total)], builder.fadd))
        builder.store(builder.fadd(*totals), wide.at(sums, row))
