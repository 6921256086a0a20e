"""The second visit: the exact weights of every row, a tile at a time, shown to one small reducer a statistic.

The first visit, whichever way it went, left each row's maximum and sum. So a tile's weights need no other
tile: they are made, looked at and forgotten, and memory grows with the keys, not with rows times keys. A
chunk of rows is one entry of the list of work; what its rows add up to is kept apart from that of other
chunks and added in their order, so the numbers do not hang on the threads.
"""

from __future__ import annotations

import math

import numpy as np

from headwise.kernels.bringing import bring_keys
from headwise.kernels.emission import inner, leaf
from headwise.kernels.findings import Findings
from headwise.kernels.geometry import PANEL, TILE
from headwise.kernels.host import BLOCK_ROWS
from headwise.kernels.measuring import (
    DISTANCE,
    ENTROPY,
    INVERSE,
    LOCAL,
    LOG_SUM,
    MAXIMUM,
    PLACE,
    RECORD,
    measure_rows,
)
from headwise.kernels.memory import Floats, Integers, moved
from headwise.kernels.problem import Desk, Problem
from headwise.kernels.reducers import (
    begin_row,
    end_row,
    keep_rows,
    note_columns,
    note_largest,
    note_points,
    note_top_keys,
)
from headwise.kernels.rows import bring_rows, sees, sees_any, working_heads
from headwise.kernels.tiles import STRIP, find_strips, score_strips, settle_scores, strip_count

_NOTHING = np.float32(-np.inf)

_NONE, _WEIGHTS, _NO_SOFTMAX = (np.float32(kind) for kind in range(3))
"""What a row's divisor says in a visit: that it sees no key, has weights, or sees keys but has no softmax."""


@leaf
def key_floats(problem: Problem) -> int:
    """Return how many numbers the packed keys of one KV head take."""
    return (problem.kv_len + TILE - 1) // TILE * TILE * problem.head_dim


@leaf
def chunk_count(problem: Problem, findings: Findings) -> int:
    """Return how many chunks the rows of a KV head make."""
    return (problem.seq_len + findings.chunk_rows - 1) // findings.chunk_rows


@inner
def pack_keys(problem: Problem, desk: Desk, batch: int, kv_head: int, keys: Floats) -> None:
    """Pack all keys of a KV head, panel after panel."""
    for panel in range(0, problem.kv_len, PANEL):
        bring_keys(problem, desk, batch, kv_head, panel, moved(keys, panel * problem.head_dim))


@inner
def visit_chunk(
    problem: Problem,
    desk: Desk,
    findings: Findings,
    batch: int,
    kv_head: int,
    heads: Integers,
    chunk: int,
    keys: Floats,
) -> None:
    """Look at one chunk of the rows that read a KV head, a block after the other."""
    num_heads = working_heads(problem, batch, kv_head, heads)
    # Sums over rows are made head by head: how they are rounded must not hang on the heads beside.
    together = max(num_heads, 1) if findings.key_cells == 0 else 1
    first = chunk * findings.chunk_rows
    last = min(first + findings.chunk_rows, problem.seq_len)
    for place in range(0, num_heads, together):
        for row in range(first * together, last * together, BLOCK_ROWS):
            count = min(BLOCK_ROWS, last * together - row)
            bring_rows(problem, desk, batch, moved(heads, place), together, row, count)
            _visit_block(problem, desk, findings, batch, count, chunk, keys)


@inner
def _visit_block(
    problem: Problem, desk: Desk, findings: Findings, batch: int, count: int, chunk: int, keys: Floats
) -> None:
    """Look at the rows on the desk: begin each, show every tile to the reducers, end each."""
    records = desk.outputs  # of which a visit has none
    low, high = problem.kv_len, 0
    for row in range(count):
        _begin_record(problem, desk, findings, batch, row, moved(records, row * RECORD))
        begin_row(problem, desk, findings, batch, row)
        if desk.starts[row] < desk.stops[row]:
            low, high = min(low, desk.starts[row]), max(high, desk.stops[row])
    for tile in range(low // TILE * TILE, high, TILE):
        start, stop = find_strips(problem, desk, batch, count, tile)
        if start < stop:
            panels = moved(keys, tile * problem.head_dim)
            score_strips(problem, desk, count, panels, start, stop)
            _weigh(problem, desk, findings, batch, count, tile, records)
            note_largest(problem, desk, findings, batch, count, tile, records)
            note_points(problem, desk, findings, batch, count, tile)
            keep_rows(problem, desk, findings, batch, count, tile)
            note_top_keys(problem, desk, findings, batch, count, tile)
            note_columns(problem, desk, findings, batch, count, tile, chunk)
    for row in range(count):
        seen = desk.divisors[row] != _NONE
        end_row(problem, desk, findings, batch, row, seen, moved(records, row * RECORD))


@leaf
def _begin_record(
    problem: Problem, desk: Desk, findings: Findings, batch: int, row: int, record: Floats
) -> None:
    """Note what the first visit found of a row, and what kind of row it is."""
    place = (batch * problem.num_heads + desk.heads[row]) * problem.seq_len + desk.positions[row]
    maximum, total = findings.maxima[place], findings.sums[place]
    record[MAXIMUM] = np.float32(0.0) if maximum == _NOTHING else maximum
    record[INVERSE], record[LOG_SUM] = np.float32(0.0), np.float32(0.0)
    record[ENTROPY] = record[DISTANCE] = record[LOCAL] = 0.0
    desk.divisors[row] = _NONE
    if total > 0.0 and record[MAXIMUM] < math.inf:
        record[INVERSE], record[LOG_SUM] = np.float32(1.0) / total, np.float32(math.log(total))
        desk.divisors[row] = _WEIGHTS
    elif sees_any(problem, desk, batch, row):
        desk.divisors[row] = _NO_SOFTMAX


@inner
def _weigh(
    problem: Problem, desk: Desk, findings: Findings, batch: int, count: int, tile: int, records: Floats
) -> None:
    """Make the tile's scores to weights, and sum up what has a sum over the keys."""
    offset = problem.kv_len - problem.seq_len
    for row in range(count):
        records[row * RECORD + PLACE] = np.float32(desk.positions[row] + offset - tile)
    for strip in range(strip_count(count)):
        start, stop = desk.strip_starts[strip], desk.strip_stops[strip]
        if start < stop:
            first = strip * STRIP
            rows = min(STRIP, count - first)
            settle_scores(problem, desk, batch, strip, first, rows, tile)
            measure_rows(
                rows, moved(desk.weights, first * TILE), start, stop, moved(records, first * RECORD),
                np.float32(findings.local_window),
            )  # fmt: skip
            for row in range(first, first + rows):
                if desk.divisors[row] == _NO_SOFTMAX:
                    _make_nan(problem, desk, batch, row, tile, moved(records, row * RECORD))


@inner
def _make_nan(problem: Problem, desk: Desk, batch: int, row: int, tile: int, record: Floats) -> None:
    """Give NaN for a weight to every key of the tile that the row sees."""
    for key in range(desk.strip_starts[row // STRIP], desk.strip_stops[row // STRIP]):
        seen = tile + key < problem.kv_len and sees(problem, desk, batch, row, tile + key)
        desk.weights[row * TILE + key] = np.float32(np.nan) if seen else np.float32(0.0)
    record[ENTROPY] = record[DISTANCE] = record[LOCAL] = np.float32(np.nan)
