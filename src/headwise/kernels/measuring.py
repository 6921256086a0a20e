"""Scores to exact weights, once their row's softmax is known, and what is summed up on the way."""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils

from headwise.kernels.emission import FloatPointer, Lanes, counting, integer, native
from headwise.kernels.exponential import LOG2_E, exp2
from headwise.kernels.geometry import TILE
from headwise.kernels.host import GEOMETRY
from headwise.kernels.softmax import in_halves
from headwise.kernels.ways import VISIT

MAXIMUM, INVERSE, LOG_SUM, PLACE, ENTROPY, DISTANCE, LOCAL, TILE_SCORE, TILE_KEY, RECORD = range(10)
"""What is known of a row: its finite maximum, 1 / its sum, the logarithm of that sum, and where in the tile
its query stands; the sums so far; and of the tile the largest score and its key. RECORD is the size of it."""


class _Sums(NamedTuple):
    """What is summed up, or compared, over the keys of a row: places in memory that become registers."""

    entropy: ir.Value
    distance: ir.Value
    local: ir.Value
    score: ir.Value
    key: ir.Value


@native(types.int64, FloatPointer, types.int64, types.int64, FloatPointer, types.float32, group=VISIT)
def measure_rows(
    builder: ir.IRBuilder,
    count: ir.Value,
    scores: ir.Value,
    start: ir.Value,
    stop: ir.Value,
    records: ir.Value,
    window: ir.Value,
) -> None:
    """Make scores `[count, TILE]` of the keys `start .. stop` to weights, and bring the records up to date.

    start and stop are multiples of the panel. A hidden key's score is -inf. Source: the weight of a key is
    exp(score - maximum) / sum, and -log of it is log(sum) - (score - maximum).
    """
    lanes = Lanes(builder, GEOMETRY.lanes)
    with counting(builder, integer(0), count, 1) as row:
        line = lanes.at(scores, builder.mul(row, integer(TILE)))
        record = lanes.at(records, builder.mul(row, integer(RECORD)))
        sums = _begun(lanes)
        with counting(builder, start, stop, lanes.lanes) as key:
            _measure(lanes, line, key, record, lanes.splat(window), sums)
        _leave(lanes, record, sums)


def _begun(lanes: Lanes) -> _Sums:
    sums = _Sums(*(cgutils.alloca_once(lanes.builder, lanes.type) for _ in _Sums._fields))
    for place, beginning in zip(sums, (0.0, 0.0, 0.0, float("-inf"), -1.0), strict=True):
        lanes.builder.store(lanes.constant(beginning), place)
    return sums


def _measure(
    lanes: Lanes, line: ir.Value, key: ir.Value, record: ir.Value, window: ir.Value, sums: _Sums
) -> None:
    """Weigh the keys of one register."""
    builder = lanes.builder
    maximum, inverse, log_sum, place = (
        lanes.splat(builder.load(lanes.at(record, field))) for field in (MAXIMUM, INVERSE, LOG_SUM, PLACE)
    )
    score = lanes.load(line, key)
    below = builder.fsub(score, maximum)
    weight = builder.fmul(exp2(lanes, builder.fmul(below, lanes.constant(LOG2_E))), inverse)
    lanes.store(weight, line, key)
    # Held above -inf, which times the weight 0 of a hidden key would be NaN.
    held = lanes.larger(below, lanes.constant(-1e30))
    _add(lanes, sums.entropy, weight, builder.fsub(log_sum, held))
    first = lanes.splat(builder.sitofp(key, lanes.type.element))
    number = builder.fadd(first, ir.Constant(lanes.type, [float(lane) for lane in range(lanes.lanes)]))
    apart = builder.fsub(place, number)
    distance = builder.select(
        builder.fcmp_ordered("<", apart, lanes.constant(0.0)), builder.fneg(apart), apart
    )
    _add(lanes, sums.distance, weight, distance)
    is_near = builder.fcmp_ordered("<=", distance, window)
    near = builder.select(is_near, weight, lanes.constant(0.0))
    builder.store(builder.fadd(builder.load(sums.local), near), sums.local)
    is_larger = builder.fcmp_ordered(">", score, builder.load(sums.score))  # the first of equal ones stays
    for found, so_far in ((score, sums.score), (number, sums.key)):
        builder.store(builder.select(is_larger, found, builder.load(so_far)), so_far)


def _add(lanes: Lanes, place: ir.Value, weight: ir.Value, factor: ir.Value) -> None:
    lanes.builder.store(lanes.fma(weight, factor, lanes.builder.load(place)), place)


def _leave(lanes: Lanes, record: ir.Value, sums: _Sums) -> None:
    """Add the sums to the record, and note the largest score and the first key that has it."""
    builder = lanes.builder
    for place, field in ((sums.entropy, ENTROPY), (sums.distance, DISTANCE), (sums.local, LOCAL)):
        found = in_halves(lanes, [builder.load(place)], builder.fadd)
        target = lanes.at(record, field)
        builder.store(builder.fadd(builder.load(target), found), target)
    scores = builder.load(sums.score)
    largest = in_halves(lanes, [scores], lanes.larger)
    has_it = builder.fcmp_ordered("==", scores, lanes.splat(largest))
    keys = builder.select(has_it, builder.load(sums.key), lanes.constant(float(TILE)))
    first = in_halves(lanes, [keys], lanes.smaller)
    builder.store(largest, lanes.at(record, TILE_SCORE))
    builder.store(first, lanes.at(record, TILE_KEY))
