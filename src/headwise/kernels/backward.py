"""The backward pass: the gradients of query, key, value, bias and sinks, from the weights made once more.

A stretch of keys is an entry of the list of work. It is packed once, meets every block of rows that sees any
of it, and sums up its own keys' and values' gradients in memory of its thread. The query's gradients are
summed over stretches: a block's stretches take turns, in the order of the keys, in memory they share. So no
number hangs on the threads, and memory grows with the rows and the keys, not with their product.

Blocks are gone through from the last to the first: then the stretch behind follows one block later.

Source: Dao et al. 2022, algorithm 4 (the recomputation); weights are made from each row's maximum and sum and
not from logsumexp, whose rounding is as large as the score is.
"""

from __future__ import annotations

import math

import numpy as np

from headwise.kernels.bringing import bring_columns, bring_lines
from headwise.kernels.derivatives import (
    derive_dropped_rows,
    derive_rows,
    multiply_by_slopes,
    multiply_rows,
    note_slopes,
)
from headwise.kernels.drafts import Draft
from headwise.kernels.dropout import drop_rows
from headwise.kernels.emission import inner, leaf
from headwise.kernels.geometry import BLOCK_ROWS, PANEL, STRETCH, TILE
from headwise.kernels.gradients import Gradients
from headwise.kernels.host import GEOMETRY
from headwise.kernels.memory import Floats, Integers, fetch_add, fused, line_of, moved
from headwise.kernels.packing import finish_rows, scale_rows, times_zero
from headwise.kernels.problem import Desk, Problem
from headwise.kernels.products import SUMMED, multiply, multiply_columns
from headwise.kernels.rows import bring_queries, padded_width, place_rows, sees, sees_any
from headwise.kernels.schedule import wait_for
from headwise.kernels.tiles import STRIP, find_strips, multiply_strips, settle_scores, strip_count

_NOTHING = np.float32(-np.inf)
_NAN = np.float32(np.nan)
_COLUMNS = GEOMETRY.strip_rows


@leaf
def stretch_count(problem: Problem) -> int:
    """Return how many stretches the keys make; one if there are none, for the rows must be written."""
    return max(1, (problem.kv_len + STRETCH - 1) // STRETCH)


@leaf
def query_floats(rows: int, head_dim: int) -> int:
    """Return how many numbers the sums of the queries' gradients of one KV head take."""
    return rows * padded_width(head_dim)


@inner
def differentiate_stretch(
    problem: Problem,
    desk: Desk,
    draft: Draft,
    gradients: Gradients,
    batch: int,
    kv_head: int,
    heads: Integers,
    stretch: int,
    grad_queries: Floats,
    turns: Integers,
) -> None:
    """Work at one stretch of the keys of a KV head.

    grad_queries `[rows, width]` is what stretches share; turns: how many have added to each block.
    """
    tile = stretch * STRETCH
    keys = max(0, min(STRETCH, problem.kv_len - tile))
    _bring_stretch(problem, desk, draft, batch, kv_head, tile, keys)
    times_zero(draft.key_lines, STRETCH * padded_width(problem.head_dim), desk.number)
    keys_are_finite = desk.number[0] == 0.0
    group_size = problem.num_heads // problem.num_kv_heads
    rows = group_size * problem.seq_len
    for block in range((rows + BLOCK_ROWS - 1) // BLOCK_ROWS - 1, -1, -1):
        first = block * BLOCK_ROWS
        count = min(BLOCK_ROWS, rows - first)
        low, high = _stretches_of(problem, batch, group_size, first, count)
        if low <= stretch <= high:
            place_rows(problem, desk, batch, heads, group_size, first, count)
            sums = moved(grad_queries, first * padded_width(problem.head_dim))
            _differentiate_block(
                problem, desk, draft, gradients, batch, count, tile, stretch == low, keys_are_finite, sums,
                moved(turns, block), stretch - low,
            )  # fmt: skip
            if stretch == high and gradients.has_query:
                _write_queries(problem, desk, gradients, batch, count, sums)
            fetch_add(moved(turns, block), 1)
    _write_keys(problem, desk, draft, gradients, batch, kv_head, tile, keys)


@inner
def _bring_stretch(
    problem: Problem, desk: Desk, draft: Draft, batch: int, kv_head: int, tile: int, keys: int
) -> None:
    """Pack keys and values of the stretch, and begin the sums of their gradients."""
    width, value_width = padded_width(problem.head_dim), padded_width(problem.value_head_dim)
    key = line_of(problem.key, problem.key_strides, batch, kv_head, tile)
    value = line_of(problem.value, problem.value_strides, batch, kv_head, tile)
    for panel in range(0, keys, PANEL):
        count = min(PANEL, keys - panel)
        bring_columns(
            problem.kind, desk, moved(key, panel * problem.key_strides[2]), problem.key_strides, count,
            problem.head_dim, moved(draft.key_columns, panel * problem.head_dim),
        )  # fmt: skip
        bring_columns(
            problem.kind, desk, moved(value, panel * problem.value_strides[2]), problem.value_strides, count,
            problem.value_head_dim, moved(draft.value_columns, panel * problem.value_head_dim),
        )  # fmt: skip
    for place in range(STRETCH * width):
        draft.key_lines[place], draft.grad_keys[place] = 0.0, 0.0
    for place in range(STRETCH * value_width):
        draft.grad_values[place] = 0.0
    bring_lines(
        problem.kind, desk, key, problem.key_strides, keys, problem.head_dim, draft.key_lines, STRETCH * PANEL
    )


@inner
def _stretches_of(
    problem: Problem, batch: int, group_size: int, first: int, count: int
) -> tuple[int, int]:
    """Return the first and the last stretch of which a block may see a key; the first if it sees none."""
    low, high = problem.kv_len, 0
    place = batch * problem.interval_stride
    for position in range(first // group_size, (first + count - 1) // group_size + 1):
        start, stop = problem.starts[place + position], problem.stops[place + position]
        if start < stop:
            low, high = min(low, start), max(high, stop)
    if low >= high:
        return 0, 0
    return low // STRETCH, (high - 1) // STRETCH


@inner
def _differentiate_block(
    problem: Problem,
    desk: Desk,
    draft: Draft,
    gradients: Gradients,
    batch: int,
    count: int,
    tile: int,
    is_first: bool,
    keys_are_finite: bool,
    sums: Floats,
    turn: Integers,
    number: int,
) -> None:
    """Let a stretch and a block of rows meet; `number` says how many stretches the block has met before."""
    _bring_block(problem, desk, draft, gradients, batch, count)
    if is_first:
        if gradients.has_sinks:
            _write_sinks(problem, desk, draft, gradients, batch, count)
        for place in range(count * padded_width(problem.head_dim)):
            sums[place] = 0.0
    start, stop = _weigh_block(problem, desk, draft, batch, count, tile)
    if start < stop:
        if gradients.has_bias:
            _add_to_bias(problem, desk, draft, gradients, batch, count, tile)
        if problem.softcap != 0.0:
            for strip in range(strip_count(count)):
                row = strip * STRIP
                multiply_by_slopes(
                    min(STRIP, count - row), moved(draft.grad_weights, row * TILE),
                    moved(draft.slopes, row * TILE), desk.strip_starts[strip], desk.strip_stops[strip],
                )  # fmt: skip
        if gradients.has_value:
            _add_products(
                problem, desk, batch, count, tile, desk.weights, draft.upstream, problem.value_head_dim,
                draft.grad_values, start, stop,
            )  # fmt: skip
        if gradients.has_key:
            _add_products(
                problem, desk, batch, count, tile, draft.grad_weights, desk.queries, problem.head_dim,
                draft.grad_keys, start, stop,
            )  # fmt: skip
    if gradients.has_query:
        wait_for(turn, number)
        if start < stop:
            _add_to_queries(problem, desk, draft, batch, count, tile, keys_are_finite, sums)


@inner
def _bring_block(
    problem: Problem, desk: Desk, draft: Draft, gradients: Gradients, batch: int, count: int
) -> None:
    """Bring the rows' queries, upstream gradients, and what is known of each row's softmax."""
    bring_queries(problem, desk, count)
    width, one = problem.value_head_dim, np.float32(1.0)
    _find_lines(desk, gradients.output_strides, batch, count)
    scale_rows(problem.kind, count, gradients.output, desk.offsets, width, one, desk.outputs)
    _find_lines(desk, gradients.upstream_strides, batch, count)
    scale_rows(problem.kind, count, gradients.upstream, desk.offsets, width, one, draft.upstream)
    multiply_rows(count, draft.upstream, desk.outputs, width, draft.sums)
    # Behind the last row the panels of the products go on: what lies there must be numbers.
    for place in range(count * width, count * width + PANEL):
        draft.upstream[place] = 0.0
    for place in range(count * problem.head_dim, count * problem.head_dim + PANEL):
        desk.queries[place] = 0.0
    for row in range(count):
        place = (batch * problem.num_heads + desk.heads[row]) * problem.seq_len + desk.positions[row]
        maximum, total = problem.maxima[place], problem.sums[place]
        draft.maxima[row] = np.float32(0.0) if maximum == _NOTHING else maximum
        draft.inverses[row] = np.float32(0.0)
        desk.divisors[row] = 0.0
        if problem.has_shifts:
            desk.shifts[row] = problem.shifts[place]
        if gradients.has_upstream_of_logsumexp:
            draft.sums[row] -= gradients.upstream_of_logsumexp[place]
        if total > 0.0 and maximum < math.inf:
            draft.inverses[row] = np.float32(1.0) / total
        elif sees_any(problem, desk, batch, row):
            desk.divisors[row] = _NAN


@leaf
def _find_lines(desk: Desk, strides: tuple[int, int, int, int], batch: int, count: int) -> None:
    """Note where the rows on the desk lie in a tensor that has the query's axes."""
    for row in range(count):
        offset = batch * strides[0] + desk.heads[row] * strides[1] + desk.positions[row] * strides[2]
        desk.offsets[row] = offset


@inner
def _weigh_block(
    problem: Problem, desk: Desk, draft: Draft, batch: int, count: int, tile: int
) -> tuple[int, int]:
    """Leave the weights on the desk, 0 where hidden, and the scores' gradients before softcap in the draft.

    Return the keys of the stretch outside of which there are none.
    """
    start, stop = find_strips(problem, desk, batch, count, tile)
    start, stop = min(start, STRETCH), min(stop, STRETCH)
    if start >= stop:
        return 0, 0
    for strip in range(strip_count(count)):
        desk.strip_starts[strip] = min(desk.strip_starts[strip], STRETCH)
        desk.strip_stops[strip] = min(desk.strip_stops[strip], STRETCH)
    multiply_strips(
        desk, count, desk.queries, problem.head_dim, draft.key_columns, start, stop, desk.weights
    )
    multiply_strips(
        desk, count, draft.upstream, problem.value_head_dim, draft.value_columns, start, stop,
        draft.grad_weights,
    )  # fmt: skip
    low, high = start // _COLUMNS * _COLUMNS, (stop + _COLUMNS - 1) // _COLUMNS * _COLUMNS
    for strip in range(strip_count(count)):
        row = strip * STRIP
        rows = min(STRIP, count - row)
        begin, end = desk.strip_starts[strip], desk.strip_stops[strip]
        if begin < end:
            _weigh_strip(problem, desk, draft, batch, strip, row, rows, tile)
        else:
            begin = end = high
        for line in range(row, row + rows):
            for key in range(low, min(begin, high)):
                desk.weights[line * TILE + key], draft.grad_weights[line * TILE + key] = 0.0, 0.0
            for key in range(end, high):
                desk.weights[line * TILE + key], draft.grad_weights[line * TILE + key] = 0.0, 0.0
    return start, stop


@inner
def _weigh_strip(
    problem: Problem, desk: Desk, draft: Draft, batch: int, strip: int, row: int, rows: int, tile: int
) -> None:
    """Make the products of a strip to weights and to the scores' gradients."""
    start, stop = desk.strip_starts[strip], desk.strip_stops[strip]
    scores, found = moved(desk.weights, row * TILE), moved(draft.grad_weights, row * TILE)
    if problem.softcap != 0.0:
        note_slopes(rows, scores, moved(draft.slopes, row * TILE), start, stop, problem.softcap)
    settle_scores(problem, desk, batch, strip, row, rows, tile)
    maxima, inverses, sums = moved(draft.maxima, row), moved(draft.inverses, row), moved(draft.sums, row)
    if problem.has_dropout:
        factors = moved(draft.factors, row * TILE)
        for line in range(rows):
            for key in range(start, stop):
                factors[line * TILE + key] = 1.0
        drop_rows(problem, desk, batch, row, rows, tile, start, stop, draft.factors)
        derive_dropped_rows(rows, factors, scores, found, start, stop, maxima, inverses, sums)
    else:
        derive_rows(rows, scores, found, start, stop, maxima, inverses, sums)
    for line in range(row, row + rows):
        if math.isnan(desk.divisors[line]):
            _make_nan(problem, desk, draft, batch, line, tile, start, stop)


@inner
def _make_nan(
    problem: Problem, desk: Desk, draft: Draft, batch: int, row: int, tile: int, start: int, stop: int
) -> None:
    """Give NaN to every key that a row without a softmax sees, and 0 to the others."""
    for key in range(start, stop):
        seen = tile + key < problem.kv_len and sees(problem, desk, batch, row, tile + key)
        number = _NAN if seen else np.float32(0.0)
        desk.weights[row * TILE + key], draft.grad_weights[row * TILE + key] = number, number


@inner
def _add_products(
    problem: Problem,
    desk: Desk,
    batch: int,
    count: int,
    tile: int,
    weights: Floats,
    lines: Floats,
    line_width: int,
    sums: Floats,
    start: int,
    stop: int,
) -> None:
    """Add to the sums `[STRETCH, width]` of the keys `start .. stop` the lines, weighted, of the rows."""
    width = padded_width(line_width)
    first = start // _COLUMNS * _COLUMNS
    times_zero(lines, padded_width(count * line_width), desk.number)
    if desk.number[0] != 0.0:
        _add_carefully(problem, desk, batch, count, tile, weights, lines, line_width, sums, start, stop)
        return
    for panel in range(0, width, PANEL):
        multiply_columns(
            stop - first, moved(weights, first), TILE, moved(lines, panel), line_width,
            moved(sums, first * width + panel), width, count,
        )  # fmt: skip


@inner
def _add_carefully(
    problem: Problem,
    desk: Desk,
    batch: int,
    count: int,
    tile: int,
    weights: Floats,
    lines: Floats,
    line_width: int,
    sums: Floats,
    start: int,
    stop: int,
) -> None:
    """Do the same row by row, hidden keys left out: what is not finite must not reach them as `0 * NaN`."""
    width = padded_width(line_width)
    for key in range(start, min(stop, problem.kv_len - tile)):
        for column in range(line_width):
            total = np.float32(0.0)
            for row in range(count):
                if sees(problem, desk, batch, row, tile + key):
                    total = fused(weights[row * TILE + key], lines[row * line_width + column], total)
            sums[key * width + column] += total


@inner
def _add_to_queries(
    problem: Problem,
    desk: Desk,
    draft: Draft,
    batch: int,
    count: int,
    tile: int,
    keys_are_finite: bool,
    sums: Floats,
) -> None:
    """Add to the sums `[rows, width]` of a block the keys of the stretch, weighted; neighbours at once."""
    width, strips = padded_width(problem.head_dim), strip_count(count)
    if not keys_are_finite:
        _add_keys_carefully(problem, desk, draft, batch, count, tile, sums)
        return
    for panel in range(width // PANEL):
        strip = 0
        while strip < strips:
            first = strip
            begin, end = desk.strip_starts[strip], desk.strip_stops[strip]
            while strip < strips and desk.strip_starts[strip] == begin and desk.strip_stops[strip] == end:
                strip += 1
            if begin < end:
                row = first * STRIP
                multiply(
                    min(strip * STRIP, count) - row, SUMMED, moved(draft.grad_weights, row * TILE + begin), TILE,
                    moved(draft.key_lines, (panel * STRETCH + begin) * PANEL), PANEL,
                    moved(sums, row * width + panel * PANEL), width, desk.number,
                    min(end, problem.kv_len - tile) - begin,
                )  # fmt: skip


@inner
def _add_keys_carefully(
    problem: Problem, desk: Desk, draft: Draft, batch: int, count: int, tile: int, sums: Floats
) -> None:
    """Do the same row by row, hidden keys left out."""
    width = padded_width(problem.head_dim)
    for row in range(count):
        start, stop = desk.strip_starts[row // STRIP], desk.strip_stops[row // STRIP]
        for column in range(problem.head_dim):
            lines = moved(draft.key_lines, column // PANEL * STRETCH * PANEL + column % PANEL)
            total = np.float32(0.0)
            for key in range(start, min(stop, problem.kv_len - tile)):
                if sees(problem, desk, batch, row, tile + key):
                    total = fused(draft.grad_weights[row * TILE + key], lines[key * PANEL], total)
            sums[row * width + column] += total


@inner
def _add_to_bias(
    problem: Problem,
    desk: Desk,
    draft: Draft,
    gradients: Gradients,
    batch: int,
    count: int,
    tile: int,
) -> None:
    """Add the scores' gradients to those of the bias, row by row."""
    strides = gradients.bias_strides
    for row in range(count):
        strip = row // STRIP
        target = line_of(gradients.bias, strides, batch, desk.heads[row], desk.positions[row])
        for key in range(desk.strip_starts[strip], min(desk.strip_stops[strip], problem.kv_len - tile)):
            target[tile + key] += draft.grad_weights[row * TILE + key]


@inner
def _write_sinks(
    problem: Problem, desk: Desk, draft: Draft, gradients: Gradients, batch: int, count: int
) -> None:
    """Write what each row adds to the gradient of its sink: the sink's own weight times less the row's sum."""
    for row in range(count):
        head = desk.heads[row]
        place = (batch * problem.num_heads + head) * problem.seq_len + desk.positions[row]
        found = desk.divisors[row]
        if draft.inverses[row] != 0.0:
            below = problem.sinks[head] - desk.shifts[row] - draft.maxima[row]
            weight = np.float32(math.exp(below)) * draft.inverses[row]
            found = -weight * draft.sums[row]
        gradients.sinks[place] = found


@inner
def _write_queries(
    problem: Problem, desk: Desk, gradients: Gradients, batch: int, count: int, sums: Floats
) -> None:
    """Write the gradients of a block's queries: their products went with the keys, and with no scale."""
    _find_lines(desk, gradients.query_strides, batch, count)
    for row in range(count):
        desk.divisors[row], desk.gates[row] = 1.0, problem.scale
    finish_rows(
        problem.kind, count, sums, padded_width(problem.head_dim), problem.head_dim, desk.divisors,
        desk.gates, gradients.query, desk.offsets,
    )  # fmt: skip


@inner
def _write_keys(
    problem: Problem,
    desk: Desk,
    draft: Draft,
    gradients: Gradients,
    batch: int,
    kv_head: int,
    tile: int,
    keys: int,
) -> None:
    """Write the gradients of the stretch's keys and values."""
    for row in range(BLOCK_ROWS):
        desk.divisors[row], desk.gates[row] = 1.0, 1.0
    for first in range(0, keys, BLOCK_ROWS):
        count = min(BLOCK_ROWS, keys - first)
        if gradients.has_key:
            width = padded_width(problem.head_dim)
            _find_keys(desk, gradients.key_strides, batch, kv_head, tile + first, count)
            finish_rows(
                problem.kind, count, moved(draft.grad_keys, first * width), width, problem.head_dim,
                desk.divisors, desk.gates, gradients.key, desk.offsets,
            )  # fmt: skip
        if gradients.has_value:
            width = padded_width(problem.value_head_dim)
            _find_keys(desk, gradients.value_strides, batch, kv_head, tile + first, count)
            finish_rows(
                problem.kind, count, moved(draft.grad_values, first * width), width, problem.value_head_dim,
                desk.divisors, desk.gates, gradients.value, desk.offsets,
            )  # fmt: skip


@leaf
def _find_keys(
    desk: Desk, strides: tuple[int, int, int, int], batch: int, kv_head: int, first: int, count: int
) -> None:
    """Note where the keys `first .. first + count` lie in a tensor that has the key's axes."""
    for number in range(count):
        desk.offsets[number] = batch * strides[0] + kv_head * strides[1] + (first + number) * strides[2]
