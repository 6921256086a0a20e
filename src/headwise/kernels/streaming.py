"""Both products for few rows, straight from the caller's keys and values while they stream in.

A score's sum stays in a register over the whole chain, an output's over a panel of keys; the order of the
additions is that of `products`. A step reads whole lines and asks for as many that come some panels later,
into the second cache, in the order in which they lie: computing and waiting overlap, and the processor's own
prefetchers recognise a stream. A prefetch reads nothing, so it may point behind the last key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils

from headwise.kernels.emission import (
    FLOAT,
    INT32,
    INT64,
    BytePointer,
    FloatPointer,
    Lanes,
    counting,
    function_of,
    integer,
    native,
    vector,
)
from headwise.kernels.geometry import PANEL, Geometry
from headwise.kernels.host import GEOMETRY
from headwise.kernels.packing import ELEMENT_BYTES, ELEMENTS, for_each_kind, widened

SCORED_ROWS = {16: (8, 4), 8: (4, 1), 4: (8, 4)}
"""Rows whose scores are made at once, by the lanes of a register. Where fewer are there the last of them is
made several times over: that costs less than another way through the keys."""

SUMMED_ROWS = 2
"""Rows whose outputs are summed at once; one is summed twice. Two rows by 128 columns beat four by 64, which
read half a value: the processor's prefetchers then see no stream."""

SUMMED_VECTORS = {16: (8, 4, 1), 8: (4, 2), 4: (8, 4)}
"""Vectors of columns that are summed at once, by the lanes of one; the last makes up a panel."""

_LINE_BYTES = 64
_LINES_AT_ONCE = 2
"""Lines that are asked for between two looks at whether a key has ended."""

_BYTES = ir.IntType(8).as_pointer()
_FLOATS = FLOAT.as_pointer()
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


class _Block(NamedTuple):
    """What the product of a block of rows with some lines is told, beside what `_Operands` names.

    - rows: how many rows there are; a block that is larger computes the last of them several times over
    - asks: whether to ask for later lines, which lie so many bytes `ahead` of those that are read
    """

    rows: ir.Value
    factors: ir.Value
    factor_stride: ir.Value
    lines: ir.Value
    line_stride: ir.Value
    width: ir.Value
    sums: ir.Value
    sum_stride: ir.Value
    asks: ir.Value
    ahead: ir.Value


BLOCK_KINDS = [INT64, _FLOATS, INT64, _BYTES, INT64, INT64, _FLOATS, INT64, ir.IntType(1), INT64]


class _Variable:
    """A value that changes in a loop: kept in memory here, and by LLVM in a register."""

    def __init__(self, builder: ir.IRBuilder, start: ir.Value) -> None:
        self._builder, self._place = builder, cgutils.alloca_once(builder, start.type)
        self.set(start)

    def get(self) -> ir.Value:
        return self._builder.load(self._place)

    def set(self, value: ir.Value) -> None:
        self._builder.store(value, self._place)


@native(*_ARGUMENTS)
def score_streamed(builder: ir.IRBuilder, *arguments: ir.Value) -> None:
    """Write the scores of whole panels of keys, 16 to a panel: `[rows, keys]`."""
    given, lanes = _Operands(*arguments), Lanes(builder, GEOMETRY.lanes)
    keys = builder.mul(given.panels, integer(PANEL))
    most, few = SCORED_ROWS[lanes.lanes]
    # What remains at the end goes into a large block if a small one cannot hold it.
    whole = builder.and_(builder.add(given.count, integer(most - few - 1)), integer(-most))

    def write(kind: int, _first: ir.Value) -> None:
        with counting(builder, integer(0), keys, lanes.lanes) as key:
            for first, last, rows in ((integer(0), whole, most), (whole, given.count, few)):
                with counting(builder, first, last, rows) as row:
                    block = _block_of(lanes, given, key, row, given.factors, lanes.at(given.sums, key))
                    emit = score_emitter(GEOMETRY, kind, rows)
                    builder.call(function_of(builder.module, emit, BLOCK_KINDS), list(block))

    for_each_kind(builder, given.kind, given.lines, write)


@native(*_ARGUMENTS)
def sum_streamed(builder: ir.IRBuilder, *arguments: ir.Value) -> None:
    """Add the weighted values of whole panels of keys to the sums `[rows, width]`."""
    given, lanes = _Operands(*arguments), Lanes(builder, GEOMETRY.lanes)
    keys = builder.mul(given.panels, integer(PANEL))

    def write(kind: int, _first: ir.Value) -> None:
        with counting(builder, integer(0), keys, PANEL) as key:
            start = integer(0)
            for vectors in SUMMED_VECTORS[lanes.lanes]:
                step = vectors * lanes.lanes
                stop = builder.and_(given.width, integer(-step))
                with counting(builder, start, stop, step) as column:
                    _sum_columns(lanes, given, kind, key, column, vectors)
                start = stop

    for_each_kind(builder, given.kind, given.lines, write)


def _sum_columns(
    lanes: Lanes, given: _Operands, kind: int, key: ir.Value, column: ir.Value, vectors: int
) -> None:
    """Write the calls that add a panel of keys to some columns of all rows."""
    builder = lanes.builder
    start = builder.mul(column, integer(ELEMENT_BYTES[kind]))
    with counting(builder, integer(0), given.count, SUMMED_ROWS) as row:
        factors, sums = lanes.at(given.factors, key), lanes.at(given.sums, column)
        block = _block_of(lanes, given, key, row, factors, sums)
        block = block._replace(lines=lanes.at(block.lines, start))
        emit = sum_emitter(GEOMETRY, kind, SUMMED_ROWS, vectors)
        builder.call(function_of(builder.module, emit, BLOCK_KINDS), list(block))


def _block_of(
    lanes: Lanes, given: _Operands, key: ir.Value, row: ir.Value, factors: ir.Value, sums: ir.Value
) -> _Block:
    """Return what a block is told that begins at a key and a row."""
    builder = lanes.builder
    return _Block(
        rows=builder.sub(given.count, row),
        factors=lanes.at(factors, builder.mul(row, given.factor_stride)),
        factor_stride=given.factor_stride,
        lines=lanes.at(given.lines, builder.mul(key, given.line_stride)),
        line_stride=given.line_stride,
        width=given.width,
        sums=lanes.at(sums, builder.mul(row, given.sum_stride)),
        sum_stride=given.sum_stride,
        asks=builder.icmp_signed("==", row, integer(0)),  # the other rows' blocks read the same lines
        ahead=builder.mul(given.keys_ahead, given.line_stride),
    )


def _rows_of(builder: ir.IRBuilder, given: _Block, rows: int) -> list[ir.Value]:
    """Return the numbers of a block's rows, the last one again in place of those that are not there."""
    last = builder.sub(given.rows, integer(1))
    numbers = [integer(row) for row in range(rows)]
    return [builder.select(builder.icmp_signed("<", row, last), row, last) for row in numbers]


def score_emitter(geometry: Geometry, kind: int, rows: int) -> Callable[..., None]:
    """Return what emits the scores of a block of rows with as many keys as a register has lanes."""

    def emit(builder: ir.IRBuilder, *arguments: ir.Value) -> None:
        given, lanes = _Block(*arguments), Lanes(builder, geometry.lanes)
        numbers = _rows_of(builder, given, rows)
        starts = [lanes.at(given.factors, builder.mul(row, given.factor_stride)) for row in numbers]
        sums = [_Variable(builder, lanes.constant(0.0)) for _ in numbers]
        steps = [builder.mul(given.line_stride, integer(row)) for row in range(4)]
        fours = [
            lanes.at(given.lines, builder.mul(steps[1], integer(row))) for row in range(0, lanes.lanes, 4)
        ]
        places = [_Variable(builder, four) for four in fours]
        asking = _Asking(lanes, kind, given)
        with counting(builder, integer(0), given.width, lanes.lanes) as depth:
            now = [place.get() for place in places]
            keys = [lanes.at(four, step) for four in now for step in steps]
            for first in range(0, lanes.lanes, 4):
                for ahead, column in enumerate(_four_columns(lanes, kind, keys, first)):
                    position = builder.add(depth, integer(first + ahead))
                    for start, total in zip(starts, sums, strict=True):
                        factor = lanes.splat(builder.load(lanes.at(start, position)))
                        total.set(lanes.fma(factor, column, total.get()))
                asking.ask(first // 4)
            for place, four in zip(places, now, strict=True):
                place.set(lanes.at(four, lanes.lanes * ELEMENT_BYTES[kind]))
        for row, total in zip(numbers, sums, strict=True):
            lanes.store(total.get(), lanes.at(given.sums, builder.mul(row, given.sum_stride)))

    emit.__name__ = f"score_of_{rows}_kind_{kind}"
    return emit


def sum_emitter(geometry: Geometry, kind: int, rows: int, vectors: int) -> Callable[..., None]:
    """Return what emits the sums of a block of rows over a panel of keys, `vectors` registers wide."""

    def emit(builder: ir.IRBuilder, *arguments: ir.Value) -> None:
        given, lanes = _Block(*arguments), Lanes(builder, geometry.lanes)
        numbers = _rows_of(builder, given, rows)
        columns = range(0, vectors * lanes.lanes, lanes.lanes)
        starts = [lanes.at(given.factors, builder.mul(row, given.factor_stride)) for row in numbers]
        lines = [lanes.at(given.sums, builder.mul(row, given.sum_stride)) for row in numbers]
        places = [lanes.at(line, column) for line in lines for column in columns]
        sums = [_Variable(builder, lanes.load(place)) for place in places]
        line = _Variable(builder, given.lines)
        with counting(builder, integer(0), integer(PANEL), 1) as key:
            now = line.get()
            value = builder.bitcast(now, ELEMENTS[kind].as_pointer())
            parts = [widened(lanes, kind, value, integer(column)) for column in columns]
            factors = [lanes.splat(builder.load(lanes.at(start, key))) for start in starts]
            pairs = [(factor, part) for factor in factors for part in parts]
            for pair, total in zip(pairs, sums, strict=True):
                total.set(lanes.fma(*pair, total.get()))
            with builder.if_then(given.asks):
                for place in range(0, len(columns) * lanes.lanes * ELEMENT_BYTES[kind], _LINE_BYTES):
                    _prefetch(builder, lanes.at(lanes.at(now, given.ahead), place))
            line.set(lanes.at(now, given.line_stride))
        for place, total in zip(places, sums, strict=True):
            lanes.store(total.get(), place)

    emit.__name__ = f"sum_of_{rows}_by_{vectors}_kind_{kind}"
    return emit


def _four_columns(lanes: Lanes, kind: int, keys: list[ir.Value], first: int) -> list[ir.Value]:
    """Return four columns of as many keys as there are lanes, from column `first` on.

    Four numbers of a key are loaded where they belong, a fourth of the keys into each of four registers; so
    two shuffles a column remain, half of what a square in registers takes.
    """
    builder, four, width = lanes.builder, Lanes(lanes.builder, 4), lanes.lanes

    def joined(parts: list[ir.Value]) -> ir.Value:
        while len(parts) > 1:
            order = ir.Constant(vector(2 * parts[0].type.count, INT32), list(range(2 * parts[0].type.count)))
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [builder.shuffle_vector(low, high, order) for low, high in pairs]
        return parts[0]

    def mixed(left: ir.Value, right: ir.Value, picks: list[int]) -> ir.Value:
        """Take `picks` of each four, 0 to 3 of the left register and 4 to 7 of the right one."""
        fours = range(0, width, 4)
        return lanes.shuffle(
            left, right, [at + (pick if pick < 4 else pick - 4 + width) for at in fours for pick in picks]
        )

    lines = [builder.bitcast(key, ELEMENTS[kind].as_pointer()) for key in keys]
    quads = [widened(four, kind, line, integer(first)) for line in lines]
    a, b, c, d = (joined(quads[row::4]) for row in range(4))
    halves = [(mixed(a, b, picks), mixed(c, d, picks)) for picks in ([0, 4, 1, 5], [2, 6, 3, 7])]
    return [mixed(*half, picks) for half in halves for picks in ([0, 1, 4, 5], [2, 3, 6, 7])]


class _Asking:
    """Asks for the lines of later keys, spread over a loop, in the order in which they lie."""

    def __init__(self, lanes: Lanes, kind: int, given: _Block) -> None:
        self._lanes, self._given = lanes, given
        self._fours = lanes.lanes // 4
        self._per_step = max(1, lanes.lanes * lanes.lanes * ELEMENT_BYTES[kind] // _LINE_BYTES)
        self._row_bytes = lanes.builder.mul(given.width, integer(ELEMENT_BYTES[kind]))
        self._gap = lanes.builder.sub(given.line_stride, self._row_bytes)
        self._place = _Variable(lanes.builder, lanes.at(given.lines, given.ahead))
        self._left = _Variable(lanes.builder, self._row_bytes)

    def ask(self, four: int) -> None:
        """Write what asks for the share of four columns of a step."""
        builder = self._lanes.builder
        first, last = (number * self._per_step // self._fours for number in (four, four + 1))
        with builder.if_then(self._given.asks):
            for line in range(first, last, _LINES_AT_ONCE):
                lines = min(_LINES_AT_ONCE, last - line)
                place, left = self._place.get(), builder.sub(self._left.get(), integer(lines * _LINE_BYTES))
                for number in range(lines):
                    _prefetch(builder, self._lanes.at(place, number * _LINE_BYTES))
                ended = builder.icmp_signed("<=", left, integer(0))
                skipped = builder.select(ended, self._gap, integer(0))
                self._place.set(self._lanes.at(self._lanes.at(place, lines * _LINE_BYTES), skipped))
                self._left.set(builder.add(left, builder.select(ended, self._row_bytes, integer(0))))


def _prefetch(builder: ir.IRBuilder, place: ir.Value) -> None:
    kind = ir.FunctionType(ir.VoidType(), [_BYTES, INT32, INT32, INT32])
    ask = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    reading, second_cache, data = (ir.Constant(INT32, number) for number in (0, 2, 1))
    builder.call(ask, [place, reading, second_cache, data])
