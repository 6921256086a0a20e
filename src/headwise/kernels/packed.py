"""Many rows: keys and values are packed once for each KV head, then read by every block of rows.

Values that lie as in panels already, float32 rows one behind the other, are read where they are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headwise.kernels.bringing import bring_keys, bring_values
from headwise.kernels.careful import sum_carefully
from headwise.kernels.dropout import drop_rows
from headwise.kernels.emission import inner, leaf
from headwise.kernels.geometry import PANEL, TILE
from headwise.kernels.host import BLOCK_ROWS, GEOMETRY
from headwise.kernels.ledger import NEW_FACTOR, OLD_FACTOR, join_tile
from headwise.kernels.memory import Floats, Integers, as_floats, fused, line_of, moved
from headwise.kernels.packing import FLOAT32, element_bytes, times_zero
from headwise.kernels.problem import Desk, Problem
from headwise.kernels.products import MERGED, multiply
from headwise.kernels.rows import bring_rows, padded_width, working_heads, write_rows
from headwise.kernels.softmax import weigh_tile
from headwise.kernels.tiles import STRIP, find_strips, score_panel, score_strips, strip_count, weigh_strips

_SPARE_KEYS = 4
"""Left free behind each panel of the value: panels a power of two apart would share one set of the cache."""

_ENDS = PANEL // 2 if PANEL // 2 in GEOMETRY.strips else PANEL
"""Keys at whose multiples products with values begin and end. Rows with the same end are one product; under a
causal mask so many rows share one, and they should make whole strips."""


def head_floats(kv_len: int, head_dim: int, value_head_dim: int) -> int:
    """Return how many numbers one packed KV head takes: keys, values, and one flag a tile.

    Values that are read where they lie leave their room untouched, which takes addresses and no memory.
    """
    tiles = -(-kv_len // TILE)
    width = -(-value_head_dim // PANEL) * PANEL
    return tiles * TILE * head_dim + (tiles * TILE + _SPARE_KEYS) * width + tiles


packed_head_floats = inner(head_floats)


class _Values(NamedTuple):
    """The values of a KV head: where they begin, and how far apart keys and panels of 16 columns lie."""

    first: Floats
    line: int
    panel: int


@leaf
def _places(problem: Problem) -> int:
    """Return how many keys a packed KV head has room for: whole tiles."""
    return (problem.kv_len + TILE - 1) // TILE * TILE


@leaf
def _flags_of(problem: Problem, packed: Floats) -> Floats:
    """Return where the flags of a packed KV head begin."""
    places, width = _places(problem), padded_width(problem.value_head_dim)
    return moved(packed, places * problem.head_dim + (places + _SPARE_KEYS) * width)


@leaf
def _values_of(problem: Problem, batch: int, kv_head: int, packed: Floats) -> _Values:
    """Return the values of a KV head: the packed ones, or the caller's if they lie as those do."""
    if _lie_in_panels(problem):
        line = line_of(problem.value, problem.value_strides, batch, kv_head, 0)
        return _Values(as_floats(line), problem.value_head_dim, PANEL)
    places = _places(problem)
    return _Values(moved(packed, places * problem.head_dim), PANEL, (places + _SPARE_KEYS) * PANEL)


@leaf
def _lie_in_panels(problem: Problem) -> bool:
    """Return whether values are float32 rows of whole panels, one behind the other.

    Rows that lie further apart may share few sets of the caches.
    """
    size, width, strides = element_bytes(problem.kind), problem.value_head_dim, problem.value_strides
    side_by_side = strides[3] == size and strides[2] == width * size
    return problem.kind == FLOAT32 and width % PANEL == 0 and side_by_side


@inner
def pack_tile(problem: Problem, desk: Desk, batch: int, kv_head: int, tile: int, packed: Floats) -> None:
    """Pack the keys and values of one tile, and flag it if a value is NaN or infinite."""
    count, width = min(TILE, problem.kv_len - tile), padded_width(problem.value_head_dim)
    for panel in range(0, count, PANEL):
        panel_keys = moved(packed, (tile + panel) * problem.head_dim)
        bring_keys(problem, desk, batch, kv_head, tile + panel, panel_keys)
    values, flag = _values_of(problem, batch, kv_head, packed), np.float32(0.0)
    lines = moved(values.first, tile * values.line)
    if _lie_in_panels(problem):
        times_zero(lines, count * width, desk.number)
        flag = desk.number[0]
    else:
        bring_values(problem, desk, batch, kv_head, tile, count, lines, values.panel)
        for panel in range(width // PANEL):
            times_zero(moved(lines, panel * values.panel), count * PANEL, desk.number)
            flag += desk.number[0]
    _flags_of(problem, packed)[tile // TILE] = flag


@leaf
def attend_block(
    problem: Problem, desk: Desk, batch: int, kv_head: int, heads: Integers, first: int, packed: Floats
) -> int:
    """Compute the rows `first .. first + BLOCK_ROWS` of a KV head; return how many there are."""
    num_heads = working_heads(problem, batch, kv_head, heads)
    count = min(BLOCK_ROWS, num_heads * problem.seq_len - first)
    if count <= 0:
        return 0
    bring_rows(problem, desk, batch, heads, num_heads, first, count)
    low, high = problem.kv_len, 0
    latest, earliest = 0, problem.kv_len
    for row in range(count):
        latest, earliest = max(latest, desk.starts[row]), min(earliest, desk.stops[row])
        if desk.starts[row] < desk.stops[row]:
            low, high = min(low, desk.starts[row]), max(high, desk.stops[row])
    plain = not problem.has_mask and not problem.has_bias and problem.softcap == 0.0
    for tile in range(low // TILE * TILE, high, TILE):
        if plain and latest <= tile and tile + TILE <= earliest:
            _attend_whole_tile(problem, desk, batch, kv_head, count, tile, packed)
        else:
            _attend_tile(problem, desk, batch, kv_head, count, tile, packed)
    write_rows(problem, desk, batch, count)
    return count


@leaf
def _attend_whole_tile(
    problem: Problem, desk: Desk, batch: int, kv_head: int, count: int, tile: int, packed: Floats
) -> None:
    """Attend to a tile that every row sees whole: what most tiles are, without a question asked."""
    values, width = _values_of(problem, batch, kv_head, packed), padded_width(problem.value_head_dim)
    keys = moved(packed, tile * problem.head_dim)
    for panel in range(0, TILE, PANEL):
        score_panel(problem, desk, 0, count, moved(keys, panel * problem.head_dim), panel)
    weigh_tile(count, desk.weights, TILE, 0, TILE, desk.ledger)
    if problem.has_dropout:
        drop_rows(problem, desk, batch, 0, count, tile, 0, TILE, desk.weights)
    join_tile(desk.ledger, count)
    if _flags_of(problem, packed)[tile // TILE] != 0.0:
        for strip in range(strip_count(count)):
            desk.strip_starts[strip], desk.strip_stops[strip] = 0, TILE
        _add_carefully(problem, desk, batch, kv_head, count, tile)
        return
    for panel in range(width // PANEL):
        multiply(
            count, MERGED, desk.weights, TILE,
            moved(values.first, tile * values.line + panel * values.panel), values.line,
            moved(desk.outputs, panel * PANEL), width, moved(desk.ledger, OLD_FACTOR), TILE,
        )  # fmt: skip


@leaf
def _attend_tile(
    problem: Problem, desk: Desk, batch: int, kv_head: int, count: int, tile: int, packed: Floats
) -> None:
    """Attend to a tile that some row does not see whole, by strips: neighbours that agree are one product."""
    values, width = _values_of(problem, batch, kv_head, packed), padded_width(problem.value_head_dim)
    start, stop = find_strips(problem, desk, batch, count, tile)
    if start >= stop:
        return
    strips = strip_count(count)
    score_strips(problem, desk, count, moved(packed, tile * problem.head_dim), start, stop)
    weigh_strips(problem, desk, batch, count, tile)
    join_tile(desk.ledger, count)
    if _flags_of(problem, packed)[tile // TILE] != 0.0:
        _add_carefully(problem, desk, batch, kv_head, count, tile)
        return
    if _ENDS < PANEL:
        _leave_out_unseen(desk, count, tile)
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
                    min(strip * STRIP, count) - row, MERGED, moved(desk.weights, row * TILE + begin), TILE,
                    moved(values.first, (tile + begin) * values.line + panel * values.panel), values.line,
                    moved(desk.outputs, row * width + panel * PANEL), width,
                    moved(desk.ledger, OLD_FACTOR + row), min(end, problem.kv_len - tile) - begin,
                )  # fmt: skip


@leaf
def _leave_out_unseen(desk: Desk, count: int, tile: int) -> None:
    """Narrow what is noted for each strip to the keys its rows see, rounded to `_ENDS`."""
    for strip in range(strip_count(count)):
        low, high = TILE, 0
        for row in range(strip * STRIP, min((strip + 1) * STRIP, count)):
            low, high = min(low, desk.starts[row] - tile), max(high, desk.stops[row] - tile)
        desk.strip_starts[strip] = max(desk.strip_starts[strip], low // _ENDS * _ENDS)
        desk.strip_stops[strip] = min(desk.strip_stops[strip], (high + _ENDS - 1) // _ENDS * _ENDS)


@inner
def _add_carefully(problem: Problem, desk: Desk, batch: int, kv_head: int, count: int, tile: int) -> None:
    """Join the tile to the outputs row by row, hidden keys left out."""
    width = padded_width(problem.value_head_dim)
    for row in range(count):
        start, stop = desk.strip_starts[row // STRIP], desk.strip_stops[row // STRIP]
        sum_carefully(problem, desk, batch, kv_head, row, tile, start, stop, desk.lines)
        old, new = desk.ledger[OLD_FACTOR + row], desk.ledger[NEW_FACTOR + row]
        for column in range(problem.value_head_dim):
            place = row * width + column
            desk.outputs[place] = fused(desk.lines[column], new, desk.outputs[place] * old)
