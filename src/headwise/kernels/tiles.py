"""One tile of keys against a block of rows, strip by strip: what both ways through the keys share."""

from __future__ import annotations

import numpy as np

from headwise.kernels.emission import inner
from headwise.kernels.geometry import PANEL, TILE
from headwise.kernels.host import GEOMETRY
from headwise.kernels.ledger import LEDGER_ROWS, TILE_MAXIMUM, TILE_SUM
from headwise.kernels.memory import moved
from headwise.kernels.rows import bias_line, mask_line
from headwise.kernels.softmax import cap_scores, weigh_tile

STRIP = GEOMETRY.strip_rows
_HIDDEN = np.float32(-np.inf)


@inner
def strip_count(count):
    """Return how many strips hold so many rows."""
    return (count + STRIP - 1) // STRIP


@inner
def rows_in(strip, count):
    """Return how many of `count` rows are in a strip."""
    return min(STRIP, count - strip * STRIP)


@inner
def find_strips(problem, desk, batch, count, tile):
    """Note the panels of a tile that each strip sees; return the first and behind the last for all of them."""
    first, last = TILE, 0
    for strip in range(strip_count(count)):
        start, stop = _seen_by(desk, strip, count, tile)
        if problem.has_mask and start < stop:
            start, stop = _trimmed(problem, desk, batch, strip, count, tile, start, stop)
        desk.strip_starts[strip] = start
        desk.strip_stops[strip] = stop
        if start < stop:
            first, last = min(first, start), max(last, stop)
    return first, last


@inner
def _seen_by(desk, strip, count, tile):
    start, stop = TILE, 0
    for row in range(strip * STRIP, strip * STRIP + rows_in(strip, count)):
        low, high = max(desk.starts[row] - tile, 0), min(desk.stops[row] - tile, TILE)
        if low < high:
            start, stop = min(start, low), max(stop, high)
    return start // PANEL * PANEL, (stop + PANEL - 1) // PANEL * PANEL


@inner
def _trimmed(problem, desk, batch, strip, count, tile, start, stop):
    """Return the range without the panels at both ends of which the mask shows no key to any row."""
    while start < stop and not _any_seen(problem, desk, batch, strip, count, tile, start):
        start += PANEL
    while start < stop and not _any_seen(problem, desk, batch, strip, count, tile, stop - PANEL):
        stop -= PANEL
    return start, stop


@inner
def _any_seen(problem, desk, batch, strip, count, tile, panel):
    step = problem.mask_strides[3]
    for row in range(strip * STRIP, strip * STRIP + rows_in(strip, count)):
        mask = mask_line(problem, desk, batch, row)
        stop = min(tile + panel + PANEL, desk.stops[row])
        for key in range(max(tile + panel, desk.starts[row]), stop):
            if mask[key * step] != 0:
                return True
    return False


@inner
def weigh_strips(problem, desk, batch, count, tile):
    """Make the scores on the desk to weights, and note maximum and sum of each row."""
    for row in range(LEDGER_ROWS):
        desk.ledger[TILE_MAXIMUM + row] = _HIDDEN
        desk.ledger[TILE_SUM + row] = 0.0
    for strip in range(strip_count(count)):
        start, stop = desk.strip_starts[strip], desk.strip_stops[strip]
        if start >= stop:
            continue
        first, rows = strip * STRIP, rows_in(strip, count)
        scores = moved(desk.weights, first * TILE)
        if problem.softcap != 0.0:
            cap_scores(rows, scores, TILE, start, stop, problem.softcap)
        for row in range(first, first + rows):
            if problem.has_bias:
                _add_bias(problem, desk, batch, row, tile, start, stop)
            _hide(problem, desk, batch, row, tile, start, stop)
        weigh_tile(rows, scores, TILE, start, stop, moved(desk.ledger, first))


@inner
def _add_bias(problem, desk, batch, row, tile, start, stop):
    scores = moved(desk.weights, row * TILE)
    bias, step = bias_line(problem, desk, batch, row), problem.bias_strides[3]
    shift = desk.shifts[row]
    for key in range(start, min(stop, problem.kv_len - tile)):
        added = bias[(tile + key) * step]
        # Not a sum: the score of a hidden key may be NaN or infinite.
        scores[key] = _HIDDEN if added == _HIDDEN else scores[key] + (added - shift)


@inner
def _hide(problem, desk, batch, row, tile, start, stop):
    scores = moved(desk.weights, row * TILE)
    first, last = desk.starts[row] - tile, desk.stops[row] - tile
    for key in range(start, min(first, stop)):
        scores[key] = _HIDDEN
    for key in range(max(last, start), stop):
        scores[key] = _HIDDEN
    if problem.has_mask:
        mask, step = mask_line(problem, desk, batch, row), problem.mask_strides[3]
        for key in range(max(first, start), min(last, stop)):
            if mask[(tile + key) * step] == 0:
                scores[key] = _HIDDEN


@inner
def sees(problem, desk, batch, row, key):
    """Return whether a row sees a key."""
    if key < desk.starts[row] or key >= desk.stops[row]:
        return False
    if problem.has_mask and mask_line(problem, desk, batch, row)[key * problem.mask_strides[3]] == 0:
        return False
    return not problem.has_bias or bias_line(problem, desk, batch, row)[key * problem.bias_strides[3]] != _HIDDEN
