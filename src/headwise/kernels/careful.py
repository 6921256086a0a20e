"""What the micro-kernel's sums cannot do: values that are NaN, infinite or near the end of float32.

`0 * NaN` is NaN, so a weight of 0 does not keep a hidden value out of a product. `sum_carefully` leaves
hidden keys out altogether. For finite values its sums are those of the micro-kernel, bit for bit: leaving a
key out is adding `0 * value`.

Joining tiles has two more such corners. The factor of a tile may be 0 in float32 where one of its values is
infinite, and a sum that is not divided yet overflows where its mean would not. Both leave what is no finite
number, so a look at each finished block is enough: `mend_rows` sums the rows again that show it.
"""

from __future__ import annotations

import math

import numpy as np

from headwise.kernels.bringing import bring_keys, bring_values
from headwise.kernels.emission import inner
from headwise.kernels.geometry import PANEL, TILE
from headwise.kernels.ledger import MAXIMUM, SUM, TILE_MAXIMUM
from headwise.kernels.memory import Floats, fused, line_of, moved
from headwise.kernels.packing import finish_rows, times_zero, widen_number
from headwise.kernels.problem import Desk, Problem
from headwise.kernels.products import ADDED, multiply
from headwise.kernels.rows import bias_line, padded_width, sees
from headwise.kernels.tiles import STRIP, find_strips, score_panel, weigh_strips

_NAN = np.float32(np.nan)
_INFINITE = np.float32(np.inf)
_LARGEST = np.finfo(np.float32).max


@inner
def sum_carefully(
    problem: Problem,
    desk: Desk,
    batch: int,
    kv_head: int,
    row: int,
    tile: int,
    start: int,
    stop: int,
    sums: Floats,
) -> None:
    """Write one row's weighted sum over the keys `start .. stop` of a tile."""
    for column in range(problem.value_head_dim):
        sums[column] = 0.0
    _add_carefully(problem, desk, batch, kv_head, row, tile, start, stop, sums)


@inner
def _add_carefully(
    problem: Problem,
    desk: Desk,
    batch: int,
    kv_head: int,
    row: int,
    tile: int,
    start: int,
    stop: int,
    sums: Floats,
) -> None:
    strides = problem.value_strides
    weights = moved(desk.weights, row * TILE)
    for key in range(start, min(stop, problem.kv_len - tile)):
        if not sees(problem, desk, batch, row, tile + key):
            continue
        line = line_of(problem.value, strides, batch, kv_head, tile + key)
        for column in range(problem.value_head_dim):
            widen_number(problem.kind, moved(line, column * strides[3]), desk.number)
            value = desk.number[0]
            weight = weights[key]
            if weight == 0.0 and not math.isfinite(value):
                weight = np.float32(1.0)  # seen, and only too small a weight for float32
            sums[column] = fused(weight, value, sums[column])


@inner
def mend_rows(problem: Problem, desk: Desk, batch: int, kv_head: int, count: int) -> None:
    """Look at a block whose rows are just written, and write those again that are not right yet."""
    times_zero(desk.outputs, count * padded_width(problem.value_head_dim), desk.number)
    if desk.number[0] != 0.0:
        _sum_again(problem, desk, batch, kv_head, count)
    if problem.has_logsumexp:
        without_softmax = False
        for row in range(count):
            without_softmax = without_softmax or math.isnan(desk.ledger[SUM + row])
        if without_softmax:
            _restate_logsumexp(problem, desk, batch, kv_head, count)


@inner
def _sum_again(problem: Problem, desk: Desk, batch: int, kv_head: int, count: int) -> None:
    """Write the means of the rows that are not finite though they have a softmax; NaN divisors mark them."""
    width = padded_width(problem.value_head_dim)
    found = False
    for row in range(count):
        finite = True
        for column in range(row * width, row * width + problem.value_head_dim):
            finite = finite and math.isfinite(desk.outputs[column])
        if not finite and math.isfinite(desk.ledger[SUM + row]):
            desk.divisors[row] = _NAN
            found = True
    if not found:
        return
    for place in range(count * width):
        desk.outputs[place] = 0.0
    low, high = _tiles_seen(problem, desk, count)
    for tile in range(low, high, TILE):
        start, stop = find_strips(problem, desk, batch, count, tile)
        _score(problem, desk, batch, kv_head, count, tile, start, stop)
        weigh_strips(problem, desk, batch, count, tile)
        _halve_shares(problem, desk, count, start, stop)
        _add_values(problem, desk, batch, kv_head, count, tile, start, min(stop, problem.kv_len - tile))
    for row in range(count):
        if math.isnan(desk.divisors[row]):
            _write_doubled(problem, desk, row, width)


@inner
def _tiles_seen(problem: Problem, desk: Desk, count: int) -> tuple[int, int]:
    """Return the first key of the first tile in which any row sees a key, and the end of the last key."""
    low, high = problem.kv_len, 0
    for row in range(count):
        if desk.starts[row] < desk.stops[row]:
            low, high = min(low, desk.starts[row]), max(high, desk.stops[row])
    return low // TILE * TILE, high


@inner
def _score(
    problem: Problem, desk: Desk, batch: int, kv_head: int, count: int, tile: int, start: int, stop: int
) -> None:
    """Put the scores of the keys `start .. stop` of a tile on the desk once more."""
    for panel in range(start, stop, PANEL):
        bring_keys(problem, desk, batch, kv_head, tile + panel, desk.panel)
        score_panel(problem, desk, 0, count, desk.panel, panel)


@inner
def _halve_shares(problem: Problem, desk: Desk, count: int, start: int, stop: int) -> None:
    """Make a tile's weights to half their share of the whole row: sums of such shares cannot overflow.

    What dropout multiplied them by is left for the end.
    """
    for row in range(count):
        below = desk.ledger[TILE_MAXIMUM + row] - desk.ledger[MAXIMUM + row]
        divisor = desk.ledger[SUM + row] * problem.growth
        factor = np.float32(0.5) * np.float32(math.exp(below)) / divisor
        weights, strip = moved(desk.weights, row * TILE), row // STRIP
        for key in range(start, stop):
            seen = desk.strip_starts[strip] <= key < desk.strip_stops[strip]
            weights[key] = weights[key] * factor if seen else np.float32(0.0)


@inner
def _add_values(
    problem: Problem, desk: Desk, batch: int, kv_head: int, count: int, tile: int, start: int, stop: int
) -> None:
    """Add the weighted values of a tile to the outputs of all rows, a panel of keys at a time."""
    width = padded_width(problem.value_head_dim)
    for first in range(start, stop, PANEL):
        keys = min(stop - first, PANEL)
        bring_values(problem, desk, batch, kv_head, tile + first, keys, desk.lines, PANEL * PANEL)
        zero = np.float32(0.0)
        for panel in range(width // PANEL):
            times_zero(moved(desk.lines, panel * PANEL * PANEL), keys * PANEL, desk.number)
            zero += desk.number[0]
        if zero == 0.0:
            for panel in range(width // PANEL):
                multiply(
                    count, ADDED, moved(desk.weights, first), TILE,
                    moved(desk.lines, panel * PANEL * PANEL), PANEL,
                    moved(desk.outputs, panel * PANEL), width, desk.number, keys,
                )  # fmt: skip
        else:
            for row in range(count):
                sums = moved(desk.outputs, row * width)
                _add_carefully(problem, desk, batch, kv_head, row, tile, first, first + keys, sums)


@inner
def _write_doubled(problem: Problem, desk: Desk, row: int, width: int) -> None:
    """Write a row from half its mean, which is finite where all its values are, however it was rounded."""
    for column in range(row * width, row * width + problem.value_head_dim):
        half = desk.outputs[column]
        if math.isfinite(half):
            half = min(max(half, -_LARGEST / 2), _LARGEST / 2)
        desk.outputs[column] = (half + half) * problem.growth
    desk.divisors[row] = 1.0
    finish_rows(
        problem.kind, 1, moved(desk.outputs, row * width), width, problem.value_head_dim,
        moved(desk.divisors, row), moved(desk.gates, row), problem.output, moved(desk.offsets, row),
    )  # fmt: skip


@inner
def _restate_logsumexp(problem: Problem, desk: Desk, batch: int, kv_head: int, count: int) -> None:
    """Write infinity where a row has no softmax because of it: `inf - inf` made it NaN. NaN itself stays."""
    found = False
    for row in range(count):
        if _has_infinity(problem, desk, row):
            problem.logsumexp[_place_of(problem, desk, batch, row)] = _INFINITE
            found = True
    if not found:
        return
    low, high = _tiles_seen(problem, desk, count)
    for tile in range(low, high, TILE):
        start, stop = find_strips(problem, desk, batch, count, tile)
        _score(problem, desk, batch, kv_head, count, tile, start, stop)
        for row in range(count):
            if _has_infinity(problem, desk, row) and _sees_nan(problem, desk, batch, row, tile):
                problem.logsumexp[_place_of(problem, desk, batch, row)] = _NAN


@inner
def _place_of(problem: Problem, desk: Desk, batch: int, row: int) -> int:
    place: int = (batch * problem.num_heads + desk.heads[row]) * problem.seq_len + desk.positions[row]
    return place


@inner
def _has_infinity(problem: Problem, desk: Desk, row: int) -> bool:
    """Return whether a score, the bias or the sink of a row is infinite and above all others."""
    sink = problem.sinks[desk.heads[row]] if problem.has_sinks else np.float32(0.0)
    highest = max(desk.ledger[MAXIMUM + row], desk.shifts[row])
    return not math.isnan(sink) and max(highest, sink) == _INFINITE


@inner
def _sees_nan(problem: Problem, desk: Desk, batch: int, row: int, tile: int) -> bool:
    """Return whether a row sees a key of the tile whose score, as it lies on the desk, with bias is NaN."""
    scores, strip = moved(desk.weights, row * TILE), row // STRIP
    bias, step = bias_line(problem, desk, batch, row), problem.bias_strides[3]
    for key in range(desk.strip_starts[strip], min(desk.strip_stops[strip], problem.kv_len - tile)):
        if not sees(problem, desk, batch, row, tile + key):
            continue
        score = scores[key]
        if problem.softcap != 0.0 and not math.isnan(score):
            score = np.float32(0.0)  # any number that is none of the infinite
        if problem.has_bias:
            score += bias[(tile + key) * step]
        if math.isnan(score):
            return True
    return False
