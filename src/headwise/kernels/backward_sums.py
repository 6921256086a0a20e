"""What a block of rows and a stretch of keys add to each gradient.

Where a row or a key is not finite, hidden pairs are left out one by one: as `0 * NaN` it would reach what it
must not. For finite numbers that gives the same bits.
"""

from __future__ import annotations

import math

import numpy as np

from headwise.kernels.drafts import Draft
from headwise.kernels.emission import inner, leaf
from headwise.kernels.geometry import PANEL, STRETCH, TILE
from headwise.kernels.gradients import Gradients
from headwise.kernels.host import GEOMETRY
from headwise.kernels.memory import Floats, fused, line_of, moved
from headwise.kernels.packing import times_zero
from headwise.kernels.problem import Desk, Problem
from headwise.kernels.products import SUMMED, multiply, multiply_columns
from headwise.kernels.rows import padded_width, sees
from headwise.kernels.tiles import STRIP, strip_count

_COLUMNS = GEOMETRY.column_strip


@leaf
def add_to_keys(
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


@leaf
def add_to_queries(
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
                weights = moved(draft.grad_weights, row * TILE + begin)
                multiply(
                    min(strip * STRIP, count) - row, SUMMED, weights, TILE,
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
def add_to_bias(
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
        start, stop = desk.strip_starts[strip], min(desk.strip_stops[strip], problem.kv_len - tile)
        line = moved(draft.grad_weights, row * TILE)
        if gradients.has_bias_rests:
            rests = line_of(gradients.bias_rests, strides, batch, desk.heads[row], desk.positions[row])
            _add_with_rests(moved(target, tile), moved(rests, tile), line, start, stop)
        else:
            for key in range(start, stop):
                target[tile + key] += line[key]


@inner
def _add_with_rests(target: Floats, rests: Floats, line: Floats, start: int, stop: int) -> None:
    """Add a line to sums over very many rows, and what each sum loses to rounding to its rest.

    Source: Knuth, The Art of Computer Programming, volume 2, 4.2.2, theorem B.
    """
    for key in range(start, stop):
        before, added = target[key], line[key]
        total = before + added
        grown = total - before
        rests[key] += (before - (total - grown)) + (added - grown)
        target[key] = total


@inner
def write_sinks(
    problem: Problem, desk: Desk, draft: Draft, gradients: Gradients, batch: int, count: int
) -> None:
    """Write what each row adds to the gradient of its sink: minus its own weight times the row's sum."""
    for row in range(count):
        head = desk.heads[row]
        place = (batch * problem.num_heads + head) * problem.seq_len + desk.positions[row]
        found = desk.divisors[row]
        if draft.inverses[row] != 0.0:
            below = problem.sinks[head] - desk.shifts[row] - draft.maxima[row]
            weight = np.float32(math.exp(below)) * draft.inverses[row]
            found = -weight * draft.sums[row]
        gradients.sinks[place] = found
