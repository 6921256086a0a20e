"""A block of rows in the backward pass: brought to the desk, and its weights against a stretch of keys."""

from __future__ import annotations

import math

import numpy as np

from headwise.kernels.derivatives import (
    derive_dropped_rows,
    derive_rows,
    multiply_rows,
    note_slopes,
)
from headwise.kernels.drafts import Draft
from headwise.kernels.dropout import drop_rows
from headwise.kernels.emission import inner, leaf
from headwise.kernels.geometry import LINE, PANEL, STRETCH, TILE
from headwise.kernels.gradients import Gradients
from headwise.kernels.host import BLOCK_ROWS, GEOMETRY
from headwise.kernels.memory import Integers, ask_for, line_of, moved
from headwise.kernels.packing import element_bytes, scale_rows
from headwise.kernels.problem import Desk, Problem
from headwise.kernels.rows import bring_queries, place_row, sees, sees_any
from headwise.kernels.tiles import STRIP, find_strips, multiply_strips, settle_scores, strip_count

_NOTHING = np.float32(-np.inf)
_NAN = np.float32(np.nan)
_COLUMNS = GEOMETRY.column_strip
_LINE_BYTES = 4 * LINE


@leaf
def _chunk_of(problem: Problem, group_size: int, block: int) -> tuple[int, int, int]:
    """Return the first position of a block's chunk, how many there are, and where in it the block begins.

    The rows of a chunk are those neighbouring positions of one head, then of the next, so that what is
    brought of a block lies together in memory.
    """
    first = block // group_size * BLOCK_ROWS
    return first, min(BLOCK_ROWS, problem.seq_len - first), block * BLOCK_ROWS - first * group_size


@leaf
def stretches_of(problem: Problem, batch: int, group_size: int, block: int) -> tuple[int, int]:
    """Return the first and the last stretch of which a block may see a key; the first if it sees none."""
    low, high = problem.kv_len, 0
    first, positions, _ = _chunk_of(problem, group_size, block)
    place = batch * problem.interval_stride + first
    for position in range(place, place + positions):
        start, stop = problem.starts[position], problem.stops[position]
        if start < stop:
            low, high = min(low, start), max(high, stop)
    if low >= high:
        return 0, 0
    return low // STRETCH, (high - 1) // STRETCH


@leaf
def place_block(
    problem: Problem, desk: Desk, batch: int, heads: Integers, group_size: int, block: int, count: int
) -> None:
    """Note which rows a block has, what they see and where their queries lie."""
    first, positions, place = _chunk_of(problem, group_size, block)
    head, position = divmod(place, positions)
    for row in range(count):
        place_row(problem, desk, batch, row, heads[head], first + position)
        position += 1
        if position == positions:
            head, position = head + 1, 0


@leaf
def ask_for_block(
    problem: Problem, gradients: Gradients, batch: int, heads: Integers, group_size: int, block: int
) -> None:
    """Ask for what a block, if there is one of this number, will bring."""
    if block < 0:
        return
    first, positions, place = _chunk_of(problem, group_size, block)
    head, position = divmod(place, positions)
    size = element_bytes(problem.kind)
    for _ in range(BLOCK_ROWS):
        query = line_of(problem.query, problem.query_strides, batch, heads[head], first + position)
        upstream = line_of(
            gradients.upstream, gradients.upstream_strides, batch, heads[head], first + position
        )
        for byte in range(0, problem.head_dim * size, _LINE_BYTES):
            ask_for(moved(query, byte))
        for byte in range(0, problem.value_head_dim * size, _LINE_BYTES):
            ask_for(moved(upstream, byte))
        position += 1
        if position == positions:
            head, position = head + 1, 0


@leaf
def bring_block(
    problem: Problem, desk: Desk, draft: Draft, gradients: Gradients, batch: int, count: int
) -> None:
    """Bring the rows' queries, upstream gradients, and what is known of each row's softmax."""
    bring_queries(problem, desk, count)
    width = problem.value_head_dim
    find_lines(desk, gradients.upstream_strides, batch, count)
    scale_rows(problem.kind, count, gradients.upstream, desk.offsets, width, np.float32(1.0), draft.upstream)
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
        if total > 0.0 and maximum < math.inf:
            draft.inverses[row] = np.float32(1.0) / total
        elif sees_any(problem, desk, batch, row):
            desk.divisors[row] = _NAN


@inner
def sum_up_rows(
    problem: Problem, desk: Desk, draft: Draft, gradients: Gradients, batch: int, count: int
) -> None:
    """Leave the sum of each row's weights times their gradients, which output and upstream gradient tell."""
    width = problem.value_head_dim
    find_lines(desk, gradients.output_strides, batch, count)
    scale_rows(problem.kind, count, gradients.output, desk.offsets, width, np.float32(1.0), desk.outputs)
    multiply_rows(count, draft.upstream, desk.outputs, width, draft.sums)
    if gradients.has_upstream_of_logsumexp:
        for row in range(count):
            place = (batch * problem.num_heads + desk.heads[row]) * problem.seq_len + desk.positions[row]
            draft.sums[row] -= gradients.upstream_of_logsumexp[place]


@leaf
def find_lines(desk: Desk, strides: tuple[int, int, int, int], batch: int, count: int) -> None:
    """Note where the rows on the desk lie in a tensor that has the query's axes."""
    for row in range(count):
        offset = batch * strides[0] + desk.heads[row] * strides[1] + desk.positions[row] * strides[2]
        desk.offsets[row] = offset


@leaf
def weigh_block(
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
    multiply_strips(desk, count, desk.queries, problem.head_dim, draft.key_columns, start, stop, desk.weights)
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


@leaf
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
