"""The micro-kernel: a strip of rows times one packed panel, every sum in a register.

`sum[r, c] = rows[r, 0] * panel[0, c] + rows[r, 1] * panel[1, c] + ...`, in this order, one fused multiply-add
each. Both products of attention are this one: scores from queries and a panel of keys, outputs from weights
and a panel of the value. Each sum is one chain in a fixed order, so neither the rows beside it nor the width
of the registers can change its bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from llvmlite import ir
from numba import types

from headwise.kernels.emission import (
    FLOAT,
    INT64,
    FloatPointer,
    Lanes,
    counting,
    function_of,
    integer,
    native,
)
from headwise.kernels.geometry import PANEL, Geometry
from headwise.kernels.host import GEOMETRY
from headwise.kernels.ledger import LEDGER_ROWS
from headwise.kernels.ways import BACKWARD

FRESH, ADDED, MERGED, SUMMED = range(4)
"""What becomes of the sums.

- FRESH: they overwrite the memory
- ADDED: they go on from what stands there
- MERGED: they are joined to it, `memory * old[r] + sum * new[r]`, the factors lying as in a ledger
- SUMMED: they are added to it at their end
"""

_UNROLLED = 2
_ARGUMENTS = (types.int64, *(FloatPointer, types.int64) * 4)
_KINDS = [INT64, *(FLOAT.as_pointer(), INT64) * 4]


class _Operands(NamedTuple):
    """What a product is told, in the order of its arguments.

    - ending: what becomes of the sums
    - rows `[rows, depth]`, panel `[depth, PANEL]`, sums `[rows, PANEL]`, each with the stride of its lines
    - factors: the first row's old factor in a ledger; read if MERGED
    """

    ending: ir.Value
    rows: ir.Value
    row_stride: ir.Value
    panel: ir.Value
    panel_stride: ir.Value
    sums: ir.Value
    sum_stride: ir.Value
    factors: ir.Value
    depth: ir.Value


def strip_emitter(geometry: Geometry, count: int) -> Callable[..., None]:
    """Return what emits the product of a strip of `count` rows."""

    def emit(builder: ir.IRBuilder, *arguments: ir.Value) -> None:
        given = _Operands(*arguments)
        lanes = Lanes(builder, geometry.lanes)
        columns = range(0, PANEL, geometry.lanes)
        starts = [lanes.at(given.rows, builder.mul(given.row_stride, integer(row))) for row in range(count)]
        lines = [lanes.at(given.sums, builder.mul(given.sum_stride, integer(row))) for row in range(count)]
        places = [lanes.at(line, column) for line in lines for column in columns]

        def step(position: ir.Value, found: list[ir.Value]) -> list[ir.Value]:
            line = lanes.at(given.panel, builder.mul(position, given.panel_stride))
            parts = [lanes.load(line, column) for column in columns]
            factors = [lanes.splat(builder.load(lanes.at(start, position))) for start in starts]
            pairs = [(factor, part) for factor in factors for part in parts]
            return [lanes.fma(*pair, total) for pair, total in zip(pairs, found, strict=True)]

        begin = _begun(lanes, given.ending, places)
        _end(lanes, given, places, chained(builder, given.depth, begin, step))

    emit.__name__ = f"strip_of_{count}"
    return emit


def _end(lanes: Lanes, given: _Operands, places: list[ir.Value], sums: list[ir.Value]) -> None:
    """Write what becomes of the sums, whose places in memory go row by row."""
    builder, vectors_per_row = lanes.builder, PANEL // lanes.lanes
    with builder.if_then(builder.icmp_unsigned("==", given.ending, integer(MERGED)), likely=False):
        for number, (place, total) in enumerate(zip(places, sums, strict=True)):
            entry = lanes.at(given.factors, number // vectors_per_row)
            old, new = (lanes.splat(builder.load(lanes.at(entry, part))) for part in (0, LEDGER_ROWS))
            lanes.store(lanes.fma(total, new, builder.fmul(lanes.load(place), old)), place)
        builder.ret_void()
    with builder.if_then(builder.icmp_unsigned("==", given.ending, integer(SUMMED)), likely=False):
        for place, total in zip(places, sums, strict=True):
            lanes.store(builder.fadd(lanes.load(place), total), place)
        builder.ret_void()
    for place, total in zip(places, sums, strict=True):
        lanes.store(total, place)


def _begun(lanes: Lanes, ending: ir.Value, places: list[ir.Value]) -> list[ir.Value]:
    """Return what the sums start from: what stands in memory if they go on from it, else 0."""
    builder = lanes.builder
    before = builder.block
    with builder.if_then(builder.icmp_unsigned("==", ending, integer(ADDED))):
        there = [lanes.load(place) for place in places]
        loaded = builder.block
    begun = []
    for found in there:
        start = builder.phi(lanes.type)
        start.add_incoming(lanes.constant(0.0), before)
        start.add_incoming(found, loaded)
        begun.append(start)
    return begun


def chained(
    builder: ir.IRBuilder,
    depth: ir.Value,
    sums: list[ir.Value],
    step: Callable[[ir.Value, list[ir.Value]], list[ir.Value]],
) -> list[ir.Value]:
    """Write `depth` steps, two at a time and then one at a time, the sums carried in registers."""
    start: ir.Value = integer(0)
    even = builder.and_(depth, integer(-_UNROLLED))
    for stop, at_once in ((even, _UNROLLED), (depth, 1)):
        before = builder.block
        head, body, after = (builder.append_basic_block(name) for name in ("head", "body", "after"))
        builder.branch(head)
        builder.position_at_end(head)
        position = builder.phi(INT64)
        position.add_incoming(start, before)
        carried = [builder.phi(total.type) for total in sums]
        for phi, total in zip(carried, sums, strict=True):
            phi.add_incoming(total, before)
        builder.cbranch(builder.icmp_signed("<", position, stop), body, after)
        builder.position_at_end(body)
        grown: list[ir.Value] = list(carried)
        for ahead in range(at_once):
            grown = step(builder.add(position, integer(ahead)), grown)
        position.add_incoming(builder.add(position, integer(at_once)), builder.block)
        for phi, total in zip(carried, grown, strict=True):
            phi.add_incoming(total, builder.block)
        builder.branch(head)
        builder.position_at_end(after)
        start, sums = position, list(carried)
    return sums


@native(types.int64, *(FloatPointer, types.int64) * 3, types.int64, group=BACKWARD)
def multiply_columns(
    builder: ir.IRBuilder,
    count: ir.Value,
    columns: ir.Value,
    column_stride: ir.Value,
    panel: ir.Value,
    panel_stride: ir.Value,
    sums: ir.Value,
    sum_stride: ir.Value,
    depth: ir.Value,
) -> None:
    """Add the products of `[depth, count]`, taken column by column, with a panel to sums `[count, PANEL]`.

    `sum[c] += columns[0, c] * panel[0] + columns[1, c] * panel[1] + ...`. The count is rounded up to whole
    strips of `GEOMETRY.column_strip`, for which there must be memory.
    """
    strip = GEOMETRY.column_strip
    lanes = Lanes(builder, GEOMETRY.lanes)
    with counting(builder, integer(0), count, strip) as first:
        line = lanes.at(sums, builder.mul(first, sum_stride))
        arguments = (lanes.at(columns, first), column_stride, panel, panel_stride, line, sum_stride, depth)
        kinds = [argument.type for argument in arguments]
        builder.call(function_of(builder.module, column_emitter(GEOMETRY), kinds), arguments)


def column_emitter(geometry: Geometry) -> Callable[..., None]:
    """Return what emits the product of a strip of columns."""

    def emit(builder: ir.IRBuilder, *arguments: ir.Value) -> None:
        columns, column_stride, panel, panel_stride, sums, sum_stride, depth = arguments
        lanes, rows = Lanes(builder, geometry.lanes), range(geometry.column_strip)
        parts_of_line = range(0, PANEL, geometry.lanes)
        lines = [lanes.at(sums, builder.mul(sum_stride, integer(row))) for row in rows]
        places = [lanes.at(line, part) for line in lines for part in parts_of_line]

        def step(position: ir.Value, found: list[ir.Value]) -> list[ir.Value]:
            line = lanes.at(panel, builder.mul(position, panel_stride))
            parts = [lanes.load(line, part) for part in range(0, PANEL, geometry.lanes)]
            start = lanes.at(columns, builder.mul(position, column_stride))
            factors = [
                lanes.splat(builder.load(lanes.at(start, row))) for row in range(geometry.column_strip)
            ]
            pairs = [(factor, part) for factor in factors for part in parts]
            return [lanes.fma(*pair, total) for pair, total in zip(pairs, found, strict=True)]

        begin: list[ir.Value] = [lanes.constant(0.0) for _ in places]
        for place, total in zip(places, chained(builder, depth, begin, step), strict=True):
            lanes.store(builder.fadd(lanes.load(place), total), place)

    emit.__name__ = "strip_of_columns"
    return emit


@native(types.int64, *_ARGUMENTS)
def multiply(builder: ir.IRBuilder, count: ir.Value, *arguments: ir.Value) -> None:
    """Multiply rows with a panel; the arguments are `_Operands`."""
    given, largest = _Operands(*arguments), GEOMETRY.strip_rows
    whole = builder.mul(builder.udiv(count, integer(largest)), integer(largest))
    with counting(builder, integer(0), whole, largest) as first:
        _multiply_strip(builder, largest, given, first)
    done = builder.append_basic_block("done")
    branches = builder.switch(builder.sub(count, whole), done)
    for rows in range(1, largest):
        block = builder.append_basic_block(f"rows_{rows}")
        branches.add_case(integer(rows), block)
        builder.position_at_end(block)
        _multiply_rest(builder, rows, given, whole)
        builder.branch(done)
    builder.position_at_end(done)


def _multiply_rest(builder: ir.IRBuilder, count: int, given: _Operands, start: ir.Value) -> None:
    """Write the calls of as few strips as make up the `count` rows from `start` on."""
    first = 0
    while first < count:
        size = max(strip for strip in GEOMETRY.strips if strip <= count - first)
        _multiply_strip(builder, size, given, builder.add(start, integer(first)))
        first += size


def _multiply_strip(builder: ir.IRBuilder, size: int, given: _Operands, first: ir.Value) -> None:
    """Write the call of one strip, whose rows begin at `first`."""
    lanes = Lanes(builder, GEOMETRY.lanes)
    strip = function_of(builder.module, strip_emitter(GEOMETRY, size), _KINDS)
    its_own = given._replace(
        rows=lanes.at(given.rows, builder.mul(given.row_stride, first)),
        sums=lanes.at(given.sums, builder.mul(given.sum_stride, first)),
        factors=lanes.at(given.factors, first),
    )
    builder.call(strip, list(its_own))
