"""What is noted of each row's weights, one function a statistic; `headwise.evidence` has the definitions.

`note_*` is shown a tile of exact weights on the desk, `[rows, TILE]`. Of a row only the panels that its strip
sees hold weights, `strip_starts .. strip_stops`; a hidden key among them has 0. Tiles come in the order of
their keys.
"""

from __future__ import annotations

import numpy as np

from headwise.kernels.emission import inner, leaf
from headwise.kernels.findings import (
    ENTROPY,
    FIRST_TOKEN,
    LARGEST_WEIGHT,
    LOCAL,
    MEAN_DISTANCE,
    NUMBERS,
    SELF,
    Findings,
)
from headwise.kernels.geometry import TILE
from headwise.kernels.ledger import MAXIMUM
from headwise.kernels.measuring import DISTANCE as SUM_OF_DISTANCES
from headwise.kernels.measuring import ENTROPY as SUM_OF_ENTROPY
from headwise.kernels.measuring import LOCAL as SUM_OF_LOCAL
from headwise.kernels.measuring import RECORD, TILE_KEY, TILE_SCORE
from headwise.kernels.memory import Floats, moved
from headwise.kernels.problem import Desk, Problem
from headwise.kernels.rows import sees
from headwise.kernels.tiles import STRIP

_MISSING = np.float32(np.nan)


@leaf
def _row_place(problem: Problem, desk: Desk, batch: int, row: int) -> int:
    """Return where a row lies in `[batch, num_heads, seq_len]`."""
    place: int = (batch * problem.num_heads + desk.heads[row]) * problem.seq_len + desk.positions[row]
    return place


@leaf
def _number_place(problem: Problem, place: int, number: int) -> int:
    """Return where one of the numbers of a row lies."""
    return number * problem.batch * problem.num_heads * problem.seq_len + place


@leaf
def begin_row(problem: Problem, desk: Desk, findings: Findings, batch: int, row: int) -> None:
    """Write what is true of a row of which nothing was seen yet."""
    place = _row_place(problem, desk, batch, row)
    findings.largest_keys[place] = -1
    findings.numbers[_number_place(problem, place, LARGEST_WEIGHT)] = 0.0
    findings.numbers[_number_place(problem, place, FIRST_TOKEN)] = 0.0
    position = desk.positions[row] + problem.kv_len - problem.seq_len
    for number in range(findings.num_offsets):
        missing = np.float32(0.0) if number == SELF and position >= 0 else _MISSING
        findings.at_offsets[place * findings.num_offsets + number] = missing
    for number in range(place * findings.top_k, (place + 1) * findings.top_k):
        findings.top_weights[number], findings.top_keys[number] = 0.0, -1


@inner
def note_largest(
    problem: Problem, desk: Desk, findings: Findings, batch: int, count: int, tile: int, records: Floats
) -> None:
    """Note the largest weight of a row and its key; the largest score so far is kept in the ledger."""
    for row in range(count):
        strip, record = row // STRIP, moved(records, row * RECORD)
        if (
            desk.strip_starts[strip] < desk.strip_stops[strip]
            and record[TILE_SCORE] > desk.ledger[MAXIMUM + row]
        ):
            place, key = _row_place(problem, desk, batch, row), int(record[TILE_KEY])
            desk.ledger[MAXIMUM + row] = record[TILE_SCORE]
            findings.largest_keys[place] = tile + key
            number = _number_place(problem, place, LARGEST_WEIGHT)
            findings.numbers[number] = desk.weights[row * TILE + key]


@inner
def note_points(problem: Problem, desk: Desk, findings: Findings, batch: int, count: int, tile: int) -> None:
    """Note the weights on the first token and at the distances asked for."""
    first = findings.first_keys[batch]
    for row in range(count):
        place = _row_place(problem, desk, batch, row)
        if tile <= first < tile + TILE and sees(problem, desk, batch, row, first):
            number = _number_place(problem, place, FIRST_TOKEN)
            findings.numbers[number] = desk.weights[row * TILE + first - tile]
        position = desk.positions[row] + problem.kv_len - problem.seq_len
        for number in range(findings.num_offsets):
            key = position - findings.offsets[number]
            if tile <= key < tile + TILE and sees(problem, desk, batch, row, key):
                weight = desk.weights[row * TILE + key - tile]
                findings.at_offsets[place * findings.num_offsets + number] = weight


@inner
def keep_rows(problem: Problem, desk: Desk, findings: Findings, batch: int, count: int, tile: int) -> None:
    """Copy the weights of the rows asked for."""
    if findings.num_kept == 0:
        return
    for row in range(count):
        kept = findings.row_places[desk.positions[row]]
        if kept >= 0:
            line = (batch * problem.num_heads + desk.heads[row]) * findings.num_kept + kept
            target = moved(findings.kept_weights, line * problem.kv_len + tile)
            stop = min(desk.strip_stops[row // STRIP], problem.kv_len - tile)
            for key in range(desk.strip_starts[row // STRIP], stop):
                target[key] = desk.weights[row * TILE + key]


@inner
def note_top_keys(
    problem: Problem, desk: Desk, findings: Findings, batch: int, count: int, tile: int
) -> None:
    """Keep the largest weights of a row, largest first; of equal ones the earlier key comes first."""
    last = findings.top_k - 1
    if last < 0:
        return
    for row in range(count):
        line = _row_place(problem, desk, batch, row) * findings.top_k
        weights, keys = moved(findings.top_weights, line), moved(findings.top_keys, line)
        smallest = weights[last]
        for key in range(desk.strip_starts[row // STRIP], desk.strip_stops[row // STRIP]):
            weight = desk.weights[row * TILE + key]
            if weight > smallest:
                place = last
                while place > 0 and weights[place - 1] < weight:
                    weights[place], keys[place] = weights[place - 1], keys[place - 1]
                    place -= 1
                weights[place], keys[place] = weight, tile + key
                smallest = weights[last]


@inner
def note_columns(
    problem: Problem, desk: Desk, findings: Findings, batch: int, count: int, tile: int, chunk: int
) -> None:
    """Add up what each key receives: over the rows of a cell for the map, over all for `received`.

    The rows of the block are all of one head.
    """
    if findings.key_cells == 0:
        return
    line, row = desk.lines, 0
    while row < count:
        cell = _row_cell(problem, findings, desk.positions[row])
        for key in range(TILE):
            line[key] = 0.0
        while row < count and _row_cell(problem, findings, desk.positions[row]) == cell:
            weights = moved(desk.weights, row * TILE)
            for key in range(desk.strip_starts[row // STRIP], desk.strip_stops[row // STRIP]):
                line[key] += weights[key]
            row += 1
        _add_line(problem, desk, findings, batch, desk.heads[0], chunk, cell, tile)


@leaf
def _row_cell(problem: Problem, findings: Findings, position: int) -> int:
    """Return the cell of the map's rows that a query falls into."""
    return position * findings.row_cells // problem.seq_len


@inner
def _add_line(
    problem: Problem, desk: Desk, findings: Findings, batch: int, head: int, chunk: int, cell: int, tile: int
) -> None:
    """Add the masses of a tile's keys, summed over rows of one cell, to what is kept of the chunk."""
    line, kv_len, cells = desk.lines, problem.kv_len, findings.key_cells
    stop = min(TILE, kv_len - tile)
    if findings.collects_received:
        received = (chunk * problem.batch + batch) * problem.num_heads + head
        target = moved(findings.received, received * kv_len + tile)
        for key in range(stop):
            target[key] += line[key]
    if findings.chunk_cells == 0:
        return
    chunks = (problem.seq_len + findings.chunk_rows - 1) // findings.chunk_rows
    place = ((batch * problem.num_heads + head) * chunks + chunk) * findings.chunk_cells
    place += cell - _row_cell(problem, findings, chunk * findings.chunk_rows)
    pooled = moved(findings.pooled, place * cells)
    key = 0
    while key < stop:
        key_cell = (tile + key) * cells // kv_len
        # The first key of the next cell is the first that times the cells reaches a whole kv_len more.
        end = min(((key_cell + 1) * kv_len + cells - 1) // cells - tile, stop)
        mass = np.float32(0.0)
        for each in range(key, end):
            mass += line[each]
        pooled[key_cell] += mass
        key = end


@leaf
def end_row(
    problem: Problem, desk: Desk, findings: Findings, batch: int, row: int, seen: bool, record: Floats
) -> None:
    """Write the sums of a row; a row that sees no key has no numbers."""
    place = _row_place(problem, desk, batch, row)
    if not seen:
        for number in range(NUMBERS):
            findings.numbers[_number_place(problem, place, number)] = _MISSING
        for number in range(findings.num_offsets):
            findings.at_offsets[place * findings.num_offsets + number] = _MISSING
        return
    findings.numbers[_number_place(problem, place, ENTROPY)] = record[SUM_OF_ENTROPY]
    findings.numbers[_number_place(problem, place, MEAN_DISTANCE)] = record[SUM_OF_DISTANCES]
    findings.numbers[_number_place(problem, place, LOCAL)] = record[SUM_OF_LOCAL]
    is_nan = record[SUM_OF_ENTROPY] != record[SUM_OF_ENTROPY]
    if is_nan:
        findings.numbers[_number_place(problem, place, LARGEST_WEIGHT)] = _MISSING
        findings.largest_keys[place] = -1
    elif findings.largest_keys[place] < 0:  # every score is -inf, and a sink takes all
        findings.largest_keys[place] = _first_seen(problem, desk, batch, row)
    if findings.top_k > 0:
        _fill_top_keys(problem, desk, findings, batch, row, place, is_nan)


@leaf
def _first_seen(problem: Problem, desk: Desk, batch: int, row: int) -> int:
    """Return the first key that a row sees; -1 if there is none."""
    for key in range(desk.starts[row], desk.stops[row]):
        if sees(problem, desk, batch, row, key):
            return key
    return -1


@leaf
def _fill_top_keys(
    problem: Problem, desk: Desk, findings: Findings, batch: int, row: int, place: int, is_nan: bool
) -> None:
    """Let the other visible keys follow in their order, whose weight is 0 or NaN, where there is room."""
    line = place * findings.top_k
    weights, keys = moved(findings.top_weights, line), moved(findings.top_keys, line)
    weight = _MISSING if is_nan else np.float32(0.0)
    found = 0
    while found < findings.top_k and keys[found] >= 0:
        found += 1
    with_weight, key = found, desk.starts[row]
    while found < findings.top_k and key < desk.stops[row]:
        listed = False
        for number in range(with_weight):
            listed = listed or keys[number] == key
        if not listed and sees(problem, desk, batch, row, key):
            weights[found], keys[found] = weight, key
            found += 1
        key += 1
