"""Both products for few rows, straight from the caller's keys and values while they stream in.

A square of numbers, as many keys as a register has lanes, is read into registers once and serves every row;
the sums go through memory, in the same order as in `products`. Memory is the limit here, and sixteen keys
read at once are no stream that a core's prefetchers follow. So each step asks for a few of the lines that
come some panels later, into the second cache: computing and waiting overlap. A prefetch reads nothing, so it
may point behind the last key.

For one row alone float32 values are read line by line instead: its sums have room in registers, and lines in
their order arrive faster than squares. (In 16 bits memory is not the limit, and nothing was gained.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from llvmlite import ir
from numba import types

from headwise.kernels.emission import (
    FLOAT,
    BytePointer,
    FloatPointer,
    Lanes,
    ask_for_line,
    counting,
    integer,
    native,
)
from headwise.kernels.geometry import LINE, PANEL
from headwise.kernels.host import GEOMETRY
from headwise.kernels.packing import ELEMENT_BYTES, ELEMENTS, FLOAT32, for_each_kind, transposed, widened
from headwise.kernels.products import chained
from headwise.kernels.ways import STREAMED

_LINE_BYTES = 4 * LINE
_VECTORS = (4, 1)
"""Vectors of a line that are summed up at once: as many as there are, then one for what is left."""

_LINES_AHEAD = PANEL
"""How many keys later a line is wanted that is asked for while one is read."""

_BYTE = ir.IntType(8).as_pointer()
_ARGUMENTS = (
    types.int64, types.int64, types.int64, FloatPointer, types.int64, BytePointer, types.int64, types.int64,
    FloatPointer, types.int64, types.int64,
)  # fmt: skip


class _Operands(NamedTuple):
    """What a product is told, in the order of its arguments.

    - kind: the element type of the keys or values
    - panels: how many panels of keys stream by; count: how many rows they are for
    - factors: the numbers of each row, `factor_stride` apart: its query, or its weights from the first key on
    - lines: the keys or values from the first on, `line_stride` bytes apart; width: the numbers of each that
      are read, a multiple of the lanes
    - sums: where each row's results are, `sum_stride` apart
    - keys_ahead: how many keys later a line is wanted that is asked for now
    """

    kind: ir.Value
    panels: ir.Value
    count: ir.Value
    factors: ir.Value
    factor_stride: ir.Value
    lines: ir.Value
    line_stride: ir.Value
    width: ir.Value
    sums: ir.Value
    sum_stride: ir.Value
    keys_ahead: ir.Value


@native(*_ARGUMENTS, group=STREAMED)
def score_streamed(builder: ir.IRBuilder, *arguments: ir.Value) -> None:
    """Add the scores of whole panels of keys, 16 to a panel, to the sums `[rows, keys]`."""
    given, lanes = _Operands(*arguments), Lanes(builder, GEOMETRY.lanes)

    def add(square: list[ir.Value], key: ir.Value, depth: ir.Value) -> None:
        factors, sums = lanes.at(given.factors, depth), lanes.at(given.sums, key)
        _add_products(lanes, given, factors, transposed(lanes, square), sums)

    _stream(lanes, given, add)


@native(*_ARGUMENTS, group=STREAMED)
def sum_streamed(builder: ir.IRBuilder, *arguments: ir.Value) -> None:
    """Add the weighted values of whole panels of keys to the sums `[rows, width]`."""
    given, lanes = _Operands(*arguments), Lanes(builder, GEOMETRY.lanes)
    is_one_row = builder.icmp_unsigned("==", given.count, integer(1))
    is_float32 = builder.icmp_unsigned("==", given.kind, integer(FLOAT32))
    with builder.if_else(builder.and_(is_one_row, is_float32)) as (in_lines, in_squares):
        with in_lines:
            _sum_lines(lanes, given)
        with in_squares:
            _sum_squares(lanes, given)


def _sum_lines(lanes: Lanes, given: _Operands) -> None:
    """Write the way over all float32 lines for one row, some columns of them at a time."""
    builder = lanes.builder
    start: ir.Value = integer(0)
    for vectors in _VECTORS:
        columns = vectors * lanes.lanes
        fitting = builder.udiv(builder.sub(given.width, start), integer(columns))
        stop = builder.add(start, builder.mul(fitting, integer(columns)))
        with counting(builder, start, stop, columns) as column:
            _sum_columns(lanes, given, column, vectors)
        start = stop


def _sum_columns(lanes: Lanes, given: _Operands, column: ir.Value, vectors: int) -> None:
    """Go on with the sums of so many vectors, key by key; they are in registers meanwhile."""
    builder, size = lanes.builder, ELEMENT_BYTES[FLOAT32]
    offsets = [number * lanes.lanes for number in range(vectors)]
    places = [lanes.at(lanes.at(given.sums, column), offset) for offset in offsets]
    first = lanes.at(given.lines, builder.mul(column, integer(size)))
    ahead = builder.mul(given.line_stride, integer(_LINES_AHEAD))

    def step(key: ir.Value, totals: list[ir.Value]) -> list[ir.Value]:
        line = lanes.at(first, builder.mul(key, given.line_stride))
        wanted = lanes.at(line, ahead)
        for place in range(0, vectors * lanes.lanes * size, _LINE_BYTES):
            ask_for_line(builder, lanes.at(wanted, place))
        values = builder.bitcast(line, FLOAT.as_pointer())
        parts = [lanes.load(values, offset) for offset in offsets]
        factor = lanes.splat(builder.load(lanes.at(given.factors, key)))
        return [lanes.fma(factor, part, total) for part, total in zip(parts, totals, strict=True)]

    keys = builder.mul(given.panels, integer(PANEL))
    totals = chained(builder, keys, [lanes.load(place) for place in places], step)
    for total, place in zip(totals, places, strict=True):
        lanes.store(total, place)


def _sum_squares(lanes: Lanes, given: _Operands) -> None:
    """Write the way over all squares for any rows."""

    def add(square: list[ir.Value], key: ir.Value, column: ir.Value) -> None:
        factors, sums = lanes.at(given.factors, key), lanes.at(given.sums, column)
        _add_products(lanes, given, factors, square, sums)

    _stream(lanes, given, add)


def _stream(
    lanes: Lanes, given: _Operands, add: Callable[[list[ir.Value], ir.Value, ir.Value], None]
) -> None:
    """Write the way over all squares; `add` gets one, the number of its first key, and its first column."""
    builder, side = lanes.builder, lanes.lanes

    def write(number: int, _first: ir.Value) -> None:
        with (
            _panels(lanes, number, given) as (panel, lines),
            counting(builder, integer(0), given.width, side) as column,
        ):
            for first in range(0, PANEL, side):
                square = [widened(lanes, number, line, column) for line in lines[first : first + side]]
                key = builder.add(builder.mul(panel, integer(PANEL)), integer(first))
                add(square, key, column)
            _ask_ahead(lanes, number, given, lines[0], column)

    for_each_kind(builder, given.kind, given.lines, write)


@contextmanager
def _panels(lanes: Lanes, kind: int, given: _Operands) -> Iterator[tuple[ir.Value, list[ir.Value]]]:
    """Write a loop over panels; its body gets the panel's number and the lines of its keys."""
    builder, element, stride = lanes.builder, ELEMENTS[kind].as_pointer(), given.line_stride
    with counting(builder, integer(0), given.panels, 1) as panel:
        start = lanes.at(given.lines, builder.mul(panel, builder.mul(stride, integer(PANEL))))
        rows = [lanes.at(start, builder.mul(stride, integer(row))) for row in range(PANEL)]
        yield panel, [builder.bitcast(row, element) for row in rows]


def _add_products(
    lanes: Lanes, given: _Operands, factors: ir.Value, vectors: list[ir.Value], sums: ir.Value
) -> None:
    """Go on with the sums of every row: the vectors in order, each times the row's factor.

    Four rows go side by side. Each sum is a chain, and four chains in turn keep the multipliers busy.
    """
    builder = lanes.builder
    in_fours = builder.and_(given.count, integer(-4))
    for first, last, at_once in ((integer(0), in_fours, 4), (in_fours, given.count, 1)):
        with counting(builder, first, last, at_once) as row:
            rows = [builder.add(row, integer(ahead)) for ahead in range(at_once)]
            starts = [lanes.at(factors, builder.mul(number, given.factor_stride)) for number in rows]
            places = [lanes.at(sums, builder.mul(number, given.sum_stride)) for number in rows]
            totals = [lanes.load(place) for place in places]
            for number, vector in enumerate(vectors):
                splats = [lanes.splat(builder.load(lanes.at(start, number))) for start in starts]
                totals = [
                    lanes.fma(factor, vector, total) for factor, total in zip(splats, totals, strict=True)
                ]
            for total, place in zip(totals, places, strict=True):
                lanes.store(total, place)


def _ask_ahead(lanes: Lanes, kind: int, given: _Operands, line: ir.Value, done: ir.Value) -> None:
    """Ask for the lines, `keys_ahead` keys later, that fall to the step at column `done`, in their order.

    The steps of a panel, which begins at `line`, ask for all lines of a later one.
    """
    builder, stride = lanes.builder, given.line_stride
    ahead = lanes.at(builder.bitcast(line, _BYTE), builder.mul(given.keys_ahead, stride))
    row_bytes = builder.mul(given.width, integer(ELEMENT_BYTES[kind]))
    panel = integer(PANEL)
    first = builder.udiv(builder.mul(panel, done), given.width)
    last = builder.udiv(builder.mul(panel, builder.add(done, integer(lanes.lanes))), given.width)
    with counting(builder, first, last, 1) as row:
        start = lanes.at(ahead, builder.mul(row, stride))
        with counting(builder, integer(0), row_bytes, _LINE_BYTES) as place:
            ask_for_line(builder, lanes.at(start, place))
