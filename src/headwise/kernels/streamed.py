"""Few rows: keys and values are read once, straight from the caller's memory, in chunks that threads share.

Each tile's share is kept apart, and the last thread to finish a KV head joins them in the order of the keys:
the same sums as in `packed`, however the chunks fell to the threads.
"""

from __future__ import annotations

import math

from headwise.kernels.bringing import bring_keys, bring_values
from headwise.kernels.careful import sum_carefully
from headwise.kernels.emission import inner, leaf
from headwise.kernels.geometry import CHAIN, PANEL, TILE
from headwise.kernels.host import GEOMETRY
from headwise.kernels.ledger import NEW_FACTOR, OLD_FACTOR, TILE_MAXIMUM, TILE_SUM, join_tile
from headwise.kernels.memory import Bytes, Floats, Integers, fused, line_of, moved
from headwise.kernels.packing import element_bytes, times_zero
from headwise.kernels.problem import Desk, Problem
from headwise.kernels.products import ADDED, multiply
from headwise.kernels.rows import bring_rows, padded_width, working_heads, write_rows
from headwise.kernels.streaming import score_streamed, sum_streamed
from headwise.kernels.tiles import STRIP, find_strips, score_panel, weigh_strips

CHUNK_TILES = 4
"""Tiles of one entry of the list of work."""

_AHEAD_BYTES = 24 * 1024
"""How far behind what is being read the lines lie that are asked for in advance."""

_LANES = GEOMETRY.lanes


def share_floats(rows: int, value_head_dim: int) -> int:
    """Return how many numbers one tile's share takes: outputs, maxima and sums of the rows."""
    return rows * (-(-value_head_dim // PANEL) * PANEL + 2)


share_size = inner(share_floats)


@inner
def attend_chunk(
    problem: Problem,
    desk: Desk,
    batch: int,
    kv_head: int,
    heads: Integers,
    first_tile: int,
    last_tile: int,
    shares: Floats,
) -> None:
    """Leave the shares of the tiles `first_tile .. last_tile` of a KV head."""
    num_heads = working_heads(problem, batch, kv_head, heads)
    count = num_heads * problem.seq_len
    if count == 0:
        return
    bring_rows(problem, desk, batch, heads, num_heads, 0, count)
    for number in range(first_tile, last_tile):
        share = moved(shares, number * share_size(count, problem.value_head_dim))
        _attend_tile(problem, desk, batch, kv_head, count, number * TILE)
        _keep_share(problem, desk, count, share)


@inner
def join_shares(
    problem: Problem,
    desk: Desk,
    batch: int,
    kv_head: int,
    heads: Integers,
    first_tile: int,
    last_tile: int,
    shares: Floats,
) -> int:
    """Join the shares of all tiles of a KV head and write its rows; return how many there are."""
    num_heads = working_heads(problem, batch, kv_head, heads)
    count = num_heads * problem.seq_len
    if count == 0:
        return 0
    width = padded_width(problem.value_head_dim)
    bring_rows(problem, desk, batch, heads, num_heads, 0, count)
    for number in range(first_tile, last_tile):
        share = moved(shares, number * share_size(count, problem.value_head_dim))
        for row in range(count):
            desk.ledger[TILE_MAXIMUM + row] = share[count * width + row]
            desk.ledger[TILE_SUM + row] = share[count * (width + 1) + row]
        join_tile(desk.ledger, count)
        for row in range(count):
            old, new = desk.ledger[OLD_FACTOR + row], desk.ledger[NEW_FACTOR + row]
            for column in range(row * width, row * width + width):
                desk.outputs[column] = fused(share[column], new, desk.outputs[column] * old)
    write_rows(problem, desk, batch, count)
    return count


@leaf
def _keep_share(problem: Problem, desk: Desk, count: int, share: Floats) -> None:
    width = padded_width(problem.value_head_dim)
    for place in range(count * width):
        share[place] = desk.outputs[place]
    for row in range(count):
        share[count * width + row] = desk.ledger[TILE_MAXIMUM + row]
        share[count * (width + 1) + row] = desk.ledger[TILE_SUM + row]


@leaf
def _attend_tile(problem: Problem, desk: Desk, batch: int, kv_head: int, count: int, tile: int) -> None:
    """Leave the tile's weighted sums in the desk's outputs, its maxima and sums in the ledger."""
    start, stop = find_strips(problem, desk, batch, count, tile)
    if start < stop:
        _score(problem, desk, batch, kv_head, count, tile, start, stop)
    for place in range(count * padded_width(problem.value_head_dim)):
        desk.outputs[place] = 0.0
    weigh_strips(problem, desk, batch, count, tile)
    if start < stop:
        _clear_unseen(desk, count, start, stop)
        _add_values(problem, desk, batch, kv_head, count, tile, start, min(stop, problem.kv_len - tile))
        _mend(problem, desk, batch, kv_head, count, tile)


@leaf
def _score(
    problem: Problem, desk: Desk, batch: int, kv_head: int, count: int, tile: int, start: int, stop: int
) -> None:
    """Put the scores of the keys `start .. stop` of a tile, whole panels, on the desk."""
    strides = problem.key_strides
    panels = 0
    if strides[3] == element_bytes(problem.kind) and problem.head_dim % _LANES == 0:
        panels = (min(stop, problem.kv_len - tile) - start) // PANEL
        line = line_of(problem.key, strides, batch, kv_head, tile + start)
        _stream_scores(problem, desk, count, line, panels, start, 0, desk.weights)
        if problem.head_dim > CHAIN:
            _stream_scores(problem, desk, count, line, panels, start, CHAIN, desk.outputs)  # still unused
            for row in range(count):
                for place in range(row * TILE + start, row * TILE + start + panels * PANEL):
                    desk.weights[place] += desk.outputs[place]
    for panel in range(start + panels * PANEL, stop, PANEL):
        bring_keys(problem, desk, batch, kv_head, tile + panel, desk.panel)
        score_panel(problem, desk, 0, count, desk.panel, panel)


@inner
def _stream_scores(
    problem: Problem, desk: Desk, count: int, line: Bytes, panels: int, start: int, first: int, scores: Floats
) -> None:
    """Make the chain of products that begins at the place `first` of every query and key."""
    size = element_bytes(problem.kind)
    for row in range(count):
        for key in range(start, start + panels * PANEL):
            scores[row * TILE + key] = 0.0
    score_streamed(
        problem.kind, panels, count, moved(desk.queries, first), problem.head_dim, moved(line, first * size),
        problem.key_strides[2], min(CHAIN, problem.head_dim - first), moved(scores, start), TILE,
        _keys_ahead(problem.head_dim * size),
    )  # fmt: skip


@leaf
def _add_values(
    problem: Problem, desk: Desk, batch: int, kv_head: int, count: int, tile: int, start: int, stop: int
) -> None:
    """Add the weighted values of the keys `start .. stop` of a tile to the outputs."""
    strides, width = problem.value_strides, padded_width(problem.value_head_dim)
    panels = 0
    if strides[3] == element_bytes(problem.kind) and problem.value_head_dim % PANEL == 0:
        panels = (stop - start) // PANEL
        sum_streamed(
            problem.kind, panels, count, moved(desk.weights, start), TILE,
            line_of(problem.value, strides, batch, kv_head, tile + start), strides[2], problem.value_head_dim,
            desk.outputs, width, _keys_ahead(problem.value_head_dim * element_bytes(problem.kind)),
        )  # fmt: skip
    for first in range(start + panels * PANEL, stop, PANEL):
        keys = min(stop - first, PANEL)
        bring_values(problem, desk, batch, kv_head, tile + first, keys, desk.lines, PANEL * PANEL)
        for panel in range(width // PANEL):
            multiply(
                count, ADDED, moved(desk.weights, first), TILE,
                moved(desk.lines, panel * PANEL * PANEL), PANEL,
                moved(desk.outputs, panel * PANEL), width, desk.number, keys,
            )  # fmt: skip


@leaf
def _keys_ahead(row_bytes: int) -> int:
    """Return how many keys later a line is wanted that is asked for now."""
    return _AHEAD_BYTES // row_bytes // PANEL * PANEL + PANEL


@leaf
def _clear_unseen(desk: Desk, count: int, start: int, stop: int) -> None:
    """Give weight 0 to the panels that other strips see and the row's own does not."""
    for row in range(count):
        weights, strip = moved(desk.weights, row * TILE), row // STRIP
        for key in range(start, desk.strip_starts[strip]):
            weights[key] = 0.0
        for key in range(max(start, desk.strip_stops[strip]), stop):
            weights[key] = 0.0


@leaf
def _mend(problem: Problem, desk: Desk, batch: int, kv_head: int, count: int, tile: int) -> None:
    """Sum again, without the hidden keys, what is not finite: a hidden value may be NaN or infinite."""
    width = padded_width(problem.value_head_dim)
    times_zero(desk.outputs, count * width, desk.number)
    if desk.number[0] == 0.0:
        return
    for row in range(count):
        outputs = moved(desk.outputs, row * width)
        finite = True
        for column in range(problem.value_head_dim):
            finite = finite and math.isfinite(outputs[column])
        if not finite:
            start, stop = desk.strip_starts[row // STRIP], desk.strip_stops[row // STRIP]
            sum_carefully(problem, desk, batch, kv_head, row, tile, start, stop, outputs)
