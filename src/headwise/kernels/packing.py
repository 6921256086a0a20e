"""Copies into the order in which the micro-kernel reads: panels of 16 keys, or of 16 value columns.

A panel of keys is `[head_dim][16]`: key j of the panel is column j, so scores of 16 keys are made at once. A
panel of the value is `[keys][16]`. 16-bit numbers become float32 here, and only here: what computes behind
sees one type.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir
from numba import types
from numba.core import cgutils

from headwise.kernels.emission import (
    FLOAT,
    INT32,
    BytePointer,
    FloatPointer,
    IntegerPointer,
    Lanes,
    counting,
    integer,
    leaf,
    native,
    vector,
)
from headwise.kernels.geometry import PANEL
from headwise.kernels.host import GEOMETRY

FLOAT32, BFLOAT16, FLOAT16 = range(3)
"""The element types of tensors, by the number that compiled code knows them by."""

ELEMENTS: dict[int, ir.Type] = {FLOAT32: FLOAT, BFLOAT16: ir.IntType(16), FLOAT16: ir.HalfType()}
"""What LLVM loads and stores; bfloat16, the upper half of a float32, is widened and narrowed by its bits."""

ELEMENT_BYTES = {FLOAT32: 4, BFLOAT16: 2, FLOAT16: 2}


@leaf
def element_bytes(kind: int) -> int:
    """Return the size of an element."""
    return 4 if kind == FLOAT32 else 2


def widened(lanes: Lanes, kind: int, pointer: ir.Value, offset: ir.Value) -> ir.Value:
    """Return the vector at `offset` as float32."""
    builder = lanes.builder
    found = lanes.load(pointer, offset)
    if kind == FLOAT32:
        return found
    if kind == FLOAT16:
        return builder.fpext(found, lanes.type)
    whole = vector(lanes.lanes, INT32)
    high = builder.shl(builder.zext(found, whole), ir.Constant(whole, [16] * lanes.lanes))
    return builder.bitcast(high, lanes.type)


def for_each_kind(
    builder: ir.IRBuilder, kind: ir.Value, source: ir.Value, write: Callable[[int, ir.Value], None]
) -> None:
    """Write the code once for each element type and branch to the one that is there.

    `write` gets the number of the type, and `source` as a pointer to it.
    """
    done = builder.append_basic_block("done")
    branches = builder.switch(kind, done)
    for number, element in ELEMENTS.items():
        block = builder.append_basic_block(f"kind_{number}")
        branches.add_case(integer(number), block)
        builder.position_at_end(block)
        write(number, builder.bitcast(source, element.as_pointer()))
        builder.branch(done)
    builder.position_at_end(done)


@native(types.int64, BytePointer, types.int64, types.int64, FloatPointer)
def pack_full_key_panel(
    builder: ir.IRBuilder,
    kind: ir.Value,
    keys: ir.Value,
    stride: ir.Value,
    head_dim: ir.Value,
    panel: ir.Value,
) -> None:
    """Transpose 16 keys, `stride` bytes apart; head_dim is a multiple of the lanes."""
    lanes = Lanes(builder, GEOMETRY.lanes)
    width = lanes.lanes

    def write(number: int, _first: ir.Value) -> None:
        element = ELEMENTS[number].as_pointer()
        rows = [
            builder.bitcast(lanes.at(keys, builder.mul(stride, integer(row))), element)
            for row in range(PANEL)
        ]
        with counting(builder, integer(0), head_dim, width) as depth:
            for first in range(0, PANEL, width):
                block = [widened(lanes, number, row, depth) for row in rows[first : first + width]]
                for ahead, column in enumerate(transposed(lanes, block)):
                    line = builder.mul(builder.add(depth, integer(ahead)), integer(PANEL))
                    lanes.store(column, panel, builder.add(line, integer(first)))

    for_each_kind(builder, kind, keys, write)


def transposed(lanes: Lanes, rows: list[ir.Value]) -> list[ir.Value]:
    """Return the columns of a square block of vectors.

    Pairs of rows are interleaved within each 128 bits by one number, then by two; what is left is to
    transpose blocks of four numbers. Each step is a single shuffle of x86.
    """
    width = lanes.lanes
    quads = range(0, width, 4)

    def mixed(left: ir.Value, right: ir.Value, picks: list[int]) -> ir.Value:
        """Take `picks` of each quad, 0 to 3 of the left vector and 4 to 7 of the right one."""
        order = [quad + (pick if pick < 4 else pick - 4 + width) for quad in quads for pick in picks]
        return lanes.shuffle(left, right, order)

    fours: list[list[ir.Value]] = []
    for first in quads:
        a, b, c, d = rows[first : first + 4]
        ab, ab_high = mixed(a, b, [0, 4, 1, 5]), mixed(a, b, [2, 6, 3, 7])
        cd, cd_high = mixed(c, d, [0, 4, 1, 5]), mixed(c, d, [2, 6, 3, 7])
        low, high = [0, 1, 4, 5], [2, 3, 6, 7]
        halves = ((ab, cd), (ab_high, cd_high))
        fours.append([mixed(*half, picks) for half in halves for picks in (low, high)])
    # Quad q of fours[g][c] now holds column 4 q + c of the rows 4 g .. 4 g + 3.
    columns: list[ir.Value] = [None] * width
    for c in range(4):
        for q, column in enumerate(_transposed_quads(lanes, [group[c] for group in fours])):
            columns[4 * q + c] = column
    return columns


def _transposed_quads(lanes: Lanes, rows: list[ir.Value]) -> list[ir.Value]:
    """Transpose a square of quads: quad g of result q is quad q of row g."""
    count = len(rows)

    def quads(left: ir.Value, right: ir.Value, picks: list[int]) -> ir.Value:
        return lanes.shuffle(left, right, [4 * pick + number for pick in picks for number in range(4)])

    if count == 1:
        return rows
    if count == 2:
        return [quads(rows[0], rows[1], [q, 2 + q]) for q in range(2)]
    pairs = [(rows[0], rows[1]), (rows[2], rows[3])]
    halves = [[quads(*pair, picks) for pair in pairs] for picks in ([0, 1, 4, 5], [2, 3, 6, 7])]
    return [quads(upper, lower, picks) for upper, lower in halves for picks in ([0, 2, 4, 6], [1, 3, 5, 7])]


@native(types.int64, BytePointer, types.int64, types.int64, FloatPointer)
def widen_row(
    builder: ir.IRBuilder,
    kind: ir.Value,
    row: ir.Value,
    count: ir.Value,
    panel_stride: ir.Value,
    panels: ir.Value,
) -> None:
    """Spread a row of the value, whole panels of it, over its panels, `panel_stride` numbers apart."""
    lanes = Lanes(builder, GEOMETRY.lanes)

    def write(number: int, first: ir.Value) -> None:
        with counting(builder, integer(0), count, PANEL) as column:
            target = builder.mul(builder.udiv(column, integer(PANEL)), panel_stride)
            for place in range(0, PANEL, lanes.lanes):
                found = widened(lanes, number, first, builder.add(column, integer(place)))
                lanes.store(found, panels, builder.add(target, integer(place)))

    for_each_kind(builder, kind, row, write)


@native(types.int64, BytePointer, FloatPointer)
def widen_number(builder: ir.IRBuilder, kind: ir.Value, source: ir.Value, target: ir.Value) -> None:
    """Read one number as float32."""
    lanes = Lanes(builder, 1)

    def write(number: int, first: ir.Value) -> None:
        lanes.store(widened(lanes, number, first, integer(0)), target)

    for_each_kind(builder, kind, source, write)


@native(types.int64, types.int64, BytePointer, IntegerPointer, types.int64, types.float32, FloatPointer)
def scale_rows(
    builder: ir.IRBuilder,
    kind: ir.Value,
    count: ir.Value,
    query: ir.Value,
    offsets: ir.Value,
    head_dim: ir.Value,
    scale: ir.Value,
    target: ir.Value,
) -> None:
    """Write rows of the query, each so many bytes from its beginning, as float32 times `scale`."""

    def write(number: int, _first: ir.Value) -> None:
        with counting(builder, integer(0), count, 1) as row:
            source = _line_at(builder, number, query, offsets, row)
            line = builder.gep(target, [builder.mul(row, head_dim)])
            for lanes, start, stop in _whole_and_rest(builder, head_dim):
                with counting(builder, start, stop, lanes.lanes) as column:
                    found = widened(lanes, number, source, column)
                    lanes.store(builder.fmul(found, lanes.splat(scale)), line, column)

    for_each_kind(builder, kind, query, write)


@native(
    types.int64, types.int64, FloatPointer, types.int64, types.int64, FloatPointer, FloatPointer, BytePointer,
    IntegerPointer,
)  # fmt: skip
def finish_rows(
    builder: ir.IRBuilder,
    kind: ir.Value,
    count: ir.Value,
    numbers: ir.Value,
    width: ir.Value,
    value_head_dim: ir.Value,
    divisors: ir.Value,
    gates: ir.Value,
    output: ir.Value,
    offsets: ir.Value,
) -> None:
    """Write rows of the output, `number / divisor * gate`, rounded once to the element type, ties to even."""

    def write(number: int, _first: ir.Value) -> None:
        with counting(builder, integer(0), count, 1) as row:
            source = builder.gep(numbers, [builder.mul(row, width)])
            line = _line_at(builder, number, output, offsets, row)
            divisor, gate = (builder.load(builder.gep(array, [row])) for array in (divisors, gates))
            for lanes, start, stop in _whole_and_rest(builder, value_head_dim):
                with counting(builder, start, stop, lanes.lanes) as column:
                    share = builder.fdiv(lanes.load(source, column), lanes.splat(divisor))
                    gated = builder.fmul(share, lanes.splat(gate))
                    lanes.store(narrowed(lanes, number, gated), line, column)

    for_each_kind(builder, kind, output, write)


def _line_at(
    builder: ir.IRBuilder, kind: int, tensor: ir.Value, offsets: ir.Value, row: ir.Value
) -> ir.Value:
    """Return the first element of a row that lies `offsets[row]` bytes from a tensor's beginning."""
    offset = builder.load(builder.gep(offsets, [row]))
    return builder.bitcast(builder.gep(tensor, [offset]), ELEMENTS[kind].as_pointer())


def _whole_and_rest(builder: ir.IRBuilder, count: ir.Value) -> list[tuple[Lanes, ir.Value, ir.Value]]:
    """Return how to go over a row: in whole vectors and then one by one."""
    wide = Lanes(builder, GEOMETRY.lanes)
    whole = builder.and_(count, integer(-wide.lanes))
    return [(wide, integer(0), whole), (Lanes(builder, 1), whole, count)]


def narrowed(lanes: Lanes, kind: int, numbers: ir.Value) -> ir.Value:
    """Return a float32 vector in the element type."""
    builder = lanes.builder
    if kind == FLOAT32:
        return numbers
    if kind == FLOAT16:
        return builder.fptrunc(numbers, vector(lanes.lanes, ELEMENTS[kind]))
    whole = vector(lanes.lanes, INT32)

    def every(number: int) -> ir.Constant:
        return ir.Constant(whole, [number] * lanes.lanes)

    bits = builder.bitcast(numbers, whole)
    odd = builder.and_(builder.lshr(bits, every(16)), every(1))
    rounded = builder.add(bits, builder.add(odd, every(0x7FFF)))
    quiet = builder.or_(bits, every(0x400000))  # rounding could carry a NaN over into infinity
    is_nan = builder.fcmp_unordered("uno", numbers, numbers)
    kept = builder.lshr(builder.select(is_nan, quiet, rounded), every(16))
    return builder.trunc(kept, vector(lanes.lanes, ELEMENTS[kind]))


@native(FloatPointer, types.int64, FloatPointer)
def times_zero(builder: ir.IRBuilder, numbers: ir.Value, count: ir.Value, result: ir.Value) -> None:
    """Leave the sum of `0 * number`: 0 if all of whole panels are finite, else NaN."""
    lanes = Lanes(builder, GEOMETRY.lanes)
    zero = lanes.constant(0.0)
    # Four sums in turn: one would wait for each of its own additions.
    totals = [cgutils.alloca_once(builder, lanes.type) for _ in range(4)]
    for total in totals:
        builder.store(zero, total)
    together = builder.mul(builder.udiv(count, integer(4 * lanes.lanes)), integer(4 * lanes.lanes))
    for first, last, sums in ((integer(0), together, totals), (together, count, totals[:1])):
        with counting(builder, first, last, len(sums) * lanes.lanes) as start:
            for number, total in enumerate(sums):
                place = builder.add(start, integer(number * lanes.lanes))
                builder.store(lanes.fma(lanes.load(numbers, place), zero, builder.load(total)), total)
    one, two, three, four = (builder.load(total) for total in totals)
    found = builder.fadd(builder.fadd(one, two), builder.fadd(three, four))
    is_number = builder.fcmp_ordered("ord", found, found)
    bits = builder.bitcast(is_number, ir.IntType(lanes.lanes))
    all_are = builder.icmp_unsigned("==", bits, ir.Constant(ir.IntType(lanes.lanes), -1))
    builder.store(builder.select(all_are, ir.Constant(FLOAT, 0.0), ir.Constant(FLOAT, float("nan"))), result)
