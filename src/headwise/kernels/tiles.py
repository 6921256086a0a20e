"""One tile of keys against a block of rows: what both ways through the keys share.

Rows are looked at in strips: a strip's rows share the panels of which any of them sees a key, so that under a
causal mask little is computed for nothing, and neighbouring strips that share a panel are multiplied at once.
"""

from __future__ import annotations

import numpy as np

from headwise.kernels.bias_and_mask import add_bias, hide_masked, narrow_strip
from headwise.kernels.dropout import drop_rows
from headwise.kernels.emission import inner, leaf
from headwise.kernels.geometry import CHAIN, PANEL, TILE
from headwise.kernels.ledger import LEDGER_ROWS, TILE_MAXIMUM, TILE_SUM
from headwise.kernels.memory import Floats, Integers, moved
from headwise.kernels.problem import Desk, Problem
from headwise.kernels.products import FRESH, SUMMED, multiply
from headwise.kernels.softmax import cap_scores, weigh_tile

STRIP = 4
"""Rows that are looked at together."""

_HIDDEN = np.float32(-np.inf)


@leaf
def strip_count(count: int) -> int:
    """Return how many strips hold so many rows."""
    return (count + STRIP - 1) // STRIP


@inner
def score_panel(problem: Problem, desk: Desk, row: int, rows: int, keys: Floats, panel: int) -> None:
    """Score one packed panel of keys."""
    width = problem.head_dim
    queries, scores = moved(desk.queries, row * width), moved(desk.weights, row * TILE + panel)
    multiply_in_chains(rows, queries, width, keys, scores, desk.number)


@leaf
def multiply_in_chains(
    rows: int, lines: Floats, width: int, panel: Floats, sums: Floats, number: Floats
) -> None:
    """Multiply rows `[rows, width]` with a packed panel, in chains of `CHAIN` products added up."""
    ending = FRESH
    for first in range(0, max(width, 1), CHAIN):  # rows of width 0 have sums too, of 0
        multiply(
            rows, ending, moved(lines, first), width, moved(panel, first * PANEL), PANEL,
            sums, TILE, number, min(CHAIN, width - first),
        )  # fmt: skip
        ending = SUMMED


@leaf
def score_strips(problem: Problem, desk: Desk, count: int, keys: Floats, start: int, stop: int) -> None:
    """Score the packed panels `start .. stop` of a tile for the strips that see them, neighbours at once."""
    multiply_strips(desk, count, desk.queries, problem.head_dim, keys, start, stop, desk.weights)


@leaf
def multiply_strips(
    desk: Desk,
    count: int,
    lines: Floats,
    width: int,
    panels: Floats,
    start: int,
    stop: int,
    sums: Floats,
) -> None:
    """Multiply rows `[count, width]` with those packed panels `start .. stop` that their strips see."""
    strips = strip_count(count)
    for panel in range(start, stop, PANEL):
        strip = 0
        while strip < strips:
            first = strip
            while strip < strips and desk.strip_starts[strip] <= panel < desk.strip_stops[strip]:
                strip += 1
            if first < strip:
                row = first * STRIP
                rows = min(strip * STRIP, count) - row
                multiply_in_chains(
                    rows, moved(lines, row * width), width, moved(panels, panel * width),
                    moved(sums, row * TILE + panel), desk.number,
                )  # fmt: skip
            else:
                strip += 1


@inner
def find_strips(problem: Problem, desk: Desk, batch: int, count: int, tile: int) -> tuple[int, int]:
    """Note the panels of a tile that each strip sees; return where those of all strips begin and end."""
    first, last = TILE, 0
    for strip in range(strip_count(count)):
        row = strip * STRIP
        rows = min(STRIP, count - row)
        start, stop, is_partial = _seen_by(moved(desk.starts, row), moved(desk.stops, row), rows, tile)
        desk.strip_starts[strip] = start
        desk.strip_stops[strip] = stop
        desk.strip_partial[strip] = is_partial
        if problem.has_mask and start < stop:
            _narrow(problem, desk, batch, row, rows, tile, strip)
            start, stop = desk.strip_starts[strip], desk.strip_stops[strip]
        if start < stop:
            first, last = min(first, start), max(last, stop)
    return first, last


@leaf
def _seen_by(starts: Integers, stops: Integers, rows: int, tile: int) -> tuple[int, int, bool]:
    """Return the panels of which any row sees a key, and whether any row does not see all of them."""
    first, last = TILE, 0
    latest, earliest = 0, TILE
    for row in range(rows):
        low, high = max(starts[row] - tile, 0), min(stops[row] - tile, TILE)
        latest, earliest = max(latest, low), min(earliest, high)
        if low < high:
            first, last = min(first, low), max(last, high)
    first, last = first // PANEL * PANEL, (last + PANEL - 1) // PANEL * PANEL
    return first, last, latest > first or earliest < last


@leaf
def _narrow(problem: Problem, desk: Desk, batch: int, row: int, rows: int, tile: int, strip: int) -> None:
    """Take the mask into account in what is noted about the strip of the rows `row .. row + rows`."""
    across, down, step = problem.mask_strides[1], problem.mask_strides[2], problem.mask_strides[3]
    narrow_strip(
        1 if across == 0 and down == 0 else rows,  # the same line for all
        moved(problem.mask, batch * problem.mask_strides[0] + tile * step),
        moved(desk.heads, row), moved(desk.positions, row), across, down, step, problem.kv_len - tile,
        moved(desk.strip_starts, strip), moved(desk.strip_stops, strip), moved(desk.strip_partial, strip),
    )  # fmt: skip


@leaf
def weigh_strips(problem: Problem, desk: Desk, batch: int, count: int, tile: int) -> None:
    """Make the scores on the desk to weights, and note maximum and sum of each row; then comes dropout."""
    for row in range(LEDGER_ROWS):
        desk.ledger[TILE_MAXIMUM + row] = _HIDDEN
        desk.ledger[TILE_SUM + row] = 0.0
    for strip in range(strip_count(count)):
        start, stop = desk.strip_starts[strip], desk.strip_stops[strip]
        if start >= stop:
            continue
        first = strip * STRIP
        rows = min(STRIP, count - first)
        settle_scores(problem, desk, batch, strip, first, rows, tile)
        weigh_tile(rows, moved(desk.weights, first * TILE), TILE, start, stop, moved(desk.ledger, first))
        if problem.has_dropout:
            drop_rows(problem, desk, batch, first, rows, tile, start, stop, desk.weights)


@leaf
def settle_scores(
    problem: Problem, desk: Desk, batch: int, strip: int, first: int, rows: int, tile: int
) -> None:
    """Make products to scores: softcap, bias, and -inf for the keys that a row of the strip does not see."""
    start, stop = desk.strip_starts[strip], desk.strip_stops[strip]
    if problem.softcap != 0.0:
        cap_scores(rows, moved(desk.weights, first * TILE), TILE, start, stop, problem.softcap)
    if problem.has_bias:
        _add_bias(problem, desk, batch, first, rows, tile, start, stop)
    if desk.strip_partial[strip]:
        for row in range(first, first + rows):
            _hide_outside(desk, row, tile, start, stop)
        if problem.has_mask:
            _hide_masked(problem, desk, batch, first, rows, tile, start, stop)


@leaf
def _add_bias(
    problem: Problem, desk: Desk, batch: int, row: int, rows: int, tile: int, start: int, stop: int
) -> None:
    across, down, step = problem.bias_strides[1], problem.bias_strides[2], problem.bias_strides[3]
    add_bias(
        rows, moved(desk.weights, row * TILE),
        moved(problem.bias, batch * problem.bias_strides[0] + tile * step),
        moved(desk.heads, row), moved(desk.positions, row), across, down, step,
        moved(desk.shifts, row), start, min(stop, problem.kv_len - tile),
    )  # fmt: skip


@leaf
def _hide_outside(desk: Desk, row: int, tile: int, start: int, stop: int) -> None:
    """Hide the keys `start .. stop` of a tile that are not among those the row sees."""
    scores = moved(desk.weights, row * TILE)
    for key in range(start, min(desk.starts[row] - tile, stop)):
        scores[key] = _HIDDEN
    for key in range(max(desk.stops[row] - tile, start), stop):
        scores[key] = _HIDDEN


@leaf
def _hide_masked(
    problem: Problem, desk: Desk, batch: int, row: int, rows: int, tile: int, start: int, stop: int
) -> None:
    across, down, step = problem.mask_strides[1], problem.mask_strides[2], problem.mask_strides[3]
    hide_masked(
        rows, moved(desk.weights, row * TILE),
        moved(problem.mask, batch * problem.mask_strides[0] + tile * step),
        moved(desk.heads, row), moved(desk.positions, row), across, down, step,
        start, min(stop, problem.kv_len - tile),
    )  # fmt: skip
