"""Both products for few rows, straight from the caller's keys and values while they stream in.

A square of numbers, as many keys as a register has lanes, is read into registers once and serves every row;
the sums go through memory, in the same order as in `products`. Memory is the limit here, and sixteen rows read
at once are no stream that a core's prefetchers follow. So each square asks for a few of the lines that come
some panels later, into the second cache: computing and waiting overlap. A prefetch reads nothing, so it may
point behind the last key.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir
from numba import types
from numba.core import cgutils

from headwise.kernels.emission import INT32, INT64, BytePointer, FloatPointer, Lanes, counting, integer, native
from headwise.kernels.geometry import PANEL, TILE
from headwise.kernels.host import GEOMETRY
from headwise.kernels.packing import ELEMENTS, for_each_kind, transposed, widened

_LINE_BYTES = 64
# kind, rows, their numbers and stride, keys or values and their stride, width, sums and their stride, the panel
# that is wanted later and the bytes of one of its rows
_ARGUMENTS = (
    types.int64, types.int64, FloatPointer, types.int64, BytePointer, types.int64, types.int64,
    FloatPointer, types.int64, BytePointer, types.int64,
)  # fmt: skip


@native(*_ARGUMENTS)
def score_streamed(
    builder: ir.IRBuilder,
    kind: ir.Value,
    count: ir.Value,
    queries: ir.Value,
    query_stride: ir.Value,
    keys: ir.Value,
    key_stride: ir.Value,
    head_dim: ir.Value,
    scores: ir.Value,
    score_stride: ir.Value,
    ahead: ir.Value,
    row_bytes: ir.Value,
) -> None:
    """Add the scores of one panel of keys; head_dim is a multiple of the lanes."""
    lanes = Lanes(builder, GEOMETRY.lanes)
    width = lanes.lanes

    def write(number: int, _first: ir.Value) -> None:
        lines = _lines(lanes, number, keys, key_stride)
        with counting(builder, integer(0), head_dim, width) as depth:
            for first in range(0, PANEL, width):
                square = [widened(lanes, number, line, depth) for line in lines[first : first + width]]
                columns = transposed(lanes, square)
                with counting(builder, integer(0), count, 1) as row:
                    factors = lanes.at(lanes.at(queries, builder.mul(row, query_stride)), depth)
                    place = lanes.at(lanes.at(scores, builder.mul(row, score_stride)), first)
                    _add_products(lanes, factors, columns, place)
            _ask_ahead(lanes, depth, head_dim, ahead, key_stride, row_bytes)

    for_each_kind(builder, kind, keys, write)


@native(*_ARGUMENTS)
def sum_streamed(
    builder: ir.IRBuilder,
    kind: ir.Value,
    count: ir.Value,
    weights: ir.Value,
    weight_stride: ir.Value,
    values: ir.Value,
    value_stride: ir.Value,
    value_head_dim: ir.Value,
    outputs: ir.Value,
    output_stride: ir.Value,
    ahead: ir.Value,
    row_bytes: ir.Value,
) -> None:
    """Add the weighted values of one panel of keys; value_head_dim is a multiple of the lanes."""
    lanes = Lanes(builder, GEOMETRY.lanes)
    width = lanes.lanes

    def write(number: int, _first: ir.Value) -> None:
        lines = _lines(lanes, number, values, value_stride)
        with counting(builder, integer(0), value_head_dim, width) as column:
            for first in range(0, PANEL, width):
                square = [widened(lanes, number, line, column) for line in lines[first : first + width]]
                with counting(builder, integer(0), count, 1) as row:
                    factors = lanes.at(lanes.at(weights, builder.mul(row, weight_stride)), first)
                    place = lanes.at(lanes.at(outputs, builder.mul(row, output_stride)), column)
                    _add_products(lanes, factors, square, place)
            _ask_ahead(lanes, column, value_head_dim, ahead, value_stride, row_bytes)

    for_each_kind(builder, kind, values, write)


def _lines(lanes: Lanes, kind: int, first: ir.Value, stride: ir.Value) -> list[ir.Value]:
    builder, element = lanes.builder, ELEMENTS[kind].as_pointer()
    return [
        builder.bitcast(lanes.at(first, builder.mul(stride, integer(row))), element) for row in range(PANEL)
    ]


def _add_products(lanes: Lanes, factors: ir.Value, vectors: list[ir.Value], place: ir.Value) -> None:
    """Go on with the sums at `place`: the vectors in order, each times its factor."""
    total = lanes.load(place)
    for number, vector in enumerate(vectors):
        total = lanes.fma(lanes.splat(lanes.builder.load(lanes.at(factors, number))), vector, total)
    lanes.store(total, place)


def _ask_ahead(lanes: Lanes, done: ir.Value, size: ir.Value, ahead: ir.Value, stride: ir.Value, row_bytes: ir.Value) -> None:
    """Ask for the lines of the rows ahead that fall to this step, in their order in memory."""
    builder = lanes.builder
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, INT32, INT32, INT32])
    ask = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    reading, second_cache, data = (ir.Constant(INT32, number) for number in (0, 2, 1))
    panel = integer(PANEL)
    first = builder.udiv(builder.mul(panel, done), size)
    last = builder.udiv(builder.mul(panel, builder.add(done, integer(lanes.lanes))), size)
    with counting(builder, first, last, 1) as row:
        line = lanes.at(ahead, builder.mul(row, stride))
        with counting(builder, integer(0), row_bytes, _LINE_BYTES) as place:
            builder.call(ask, [lanes.at(line, place), reading, second_cache, data])
