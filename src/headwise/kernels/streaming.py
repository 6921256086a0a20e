"""Both products for few rows, straight from the caller's keys and values while they stream in.

A square of numbers, as many keys as a register has lanes, is read into registers once and serves every row;
the sums go through memory, in the same order as in `products`. Memory is the limit here, and sixteen rows read
at once are no stream that a core's prefetchers follow. So each square asks for a few of the lines that come
some panels later, into the second cache: computing and waiting overlap. A prefetch reads nothing, so it may
point behind the last key.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir
from numba import types
from numba.core import cgutils

from headwise.kernels.emission import INT32, BytePointer, FloatPointer, Lanes, counting, integer, native
from headwise.kernels.geometry import PANEL
from headwise.kernels.host import GEOMETRY
from headwise.kernels.packing import ELEMENT_BYTES, ELEMENTS, for_each_kind, transposed, widened

_LINE_BYTES = 64
# kind, panels, rows, their numbers and stride, keys or values and their stride, width, sums and their stride, and how
# many keys later a line is wanted that is asked for now
_ARGUMENTS = (
    types.int64, types.int64, types.int64, FloatPointer, types.int64, BytePointer, types.int64, types.int64,
    FloatPointer, types.int64, types.int64,
)  # fmt: skip


@native(*_ARGUMENTS)
def score_streamed(
    builder: ir.IRBuilder,
    kind: ir.Value,
    panels: ir.Value,
    count: ir.Value,
    queries: ir.Value,
    query_stride: ir.Value,
    keys: ir.Value,
    key_stride: ir.Value,
    head_dim: ir.Value,
    scores: ir.Value,
    score_stride: ir.Value,
    keys_ahead: ir.Value,
) -> None:
    """Add the scores of whole panels of keys, 16 to a panel; head_dim is a multiple of the lanes."""
    lanes = Lanes(builder, GEOMETRY.lanes)
    width = lanes.lanes

    def write(number: int, _first: ir.Value) -> None:
        with _panels(lanes, number, panels, keys, key_stride) as (panel, lines):
            with counting(builder, integer(0), head_dim, width) as depth:
                for first in range(0, PANEL, width):
                    square = [widened(lanes, number, line, depth) for line in lines[first : first + width]]
                    columns = transposed(lanes, square)
                    key = builder.add(builder.mul(panel, integer(PANEL)), integer(first))
                    factors, sums = lanes.at(queries, depth), lanes.at(scores, key)
                    _add_products(lanes, count, factors, query_stride, columns, sums, score_stride)
                _ask_ahead(lanes, number, lines[0], key_stride, keys_ahead, depth, head_dim)

    for_each_kind(builder, kind, keys, write)


@native(*_ARGUMENTS)
def sum_streamed(
    builder: ir.IRBuilder,
    kind: ir.Value,
    panels: ir.Value,
    count: ir.Value,
    weights: ir.Value,
    weight_stride: ir.Value,
    values: ir.Value,
    value_stride: ir.Value,
    value_head_dim: ir.Value,
    outputs: ir.Value,
    output_stride: ir.Value,
    keys_ahead: ir.Value,
) -> None:
    """Add the weighted values of whole panels of keys; value_head_dim is a multiple of the lanes."""
    lanes = Lanes(builder, GEOMETRY.lanes)
    width = lanes.lanes

    def write(number: int, _first: ir.Value) -> None:
        with _panels(lanes, number, panels, values, value_stride) as (panel, lines):
            with counting(builder, integer(0), value_head_dim, width) as column:
                for first in range(0, PANEL, width):
                    square = [widened(lanes, number, line, column) for line in lines[first : first + width]]
                    key = builder.add(builder.mul(panel, integer(PANEL)), integer(first))
                    factors, sums = lanes.at(weights, key), lanes.at(outputs, column)
                    _add_products(lanes, count, factors, weight_stride, square, sums, output_stride)
                _ask_ahead(lanes, number, lines[0], value_stride, keys_ahead, column, value_head_dim)

    for_each_kind(builder, kind, values, write)


@contextmanager
def _panels(
    lanes: Lanes, kind: int, count: ir.Value, first: ir.Value, stride: ir.Value
) -> Iterator[tuple[ir.Value, list[ir.Value]]]:
    """Write a loop over panels; its body gets the panel's number and the lines of its keys."""
    builder, element = lanes.builder, ELEMENTS[kind].as_pointer()
    with counting(builder, integer(0), count, 1) as panel:
        start = lanes.at(first, builder.mul(panel, builder.mul(stride, integer(PANEL))))
        rows = [lanes.at(start, builder.mul(stride, integer(row))) for row in range(PANEL)]
        yield panel, [builder.bitcast(row, element) for row in rows]


def _add_products(
    lanes: Lanes,
    count: ir.Value,
    factors: ir.Value,
    factor_stride: ir.Value,
    vectors: list[ir.Value],
    sums: ir.Value,
    sum_stride: ir.Value,
) -> None:
    """Go on with the sums of every row: the vectors in order, each times the row's factor.

    Four rows go side by side. Each sum is a chain, and four chains in turn keep the multipliers busy.
    """
    builder = lanes.builder
    in_fours = builder.and_(count, integer(-4))
    for first, last, at_once in ((integer(0), in_fours, 4), (in_fours, count, 1)):
        with counting(builder, first, last, at_once) as row:
            rows = [builder.add(row, integer(ahead)) for ahead in range(at_once)]
            starts = [lanes.at(factors, builder.mul(number, factor_stride)) for number in rows]
            places = [lanes.at(sums, builder.mul(number, sum_stride)) for number in rows]
            totals = [lanes.load(place) for place in places]
            for number, vector in enumerate(vectors):
                splats = [lanes.splat(builder.load(lanes.at(start, number))) for start in starts]
                totals = [
                    lanes.fma(factor, vector, total) for factor, total in zip(splats, totals, strict=True)
                ]
            for total, place in zip(totals, places, strict=True):
                lanes.store(total, place)


def _ask_ahead(
    lanes: Lanes,
    kind: int,
    line: ir.Value,
    stride: ir.Value,
    keys_ahead: ir.Value,
    done: ir.Value,
    size: ir.Value,
) -> None:
    """Ask for the lines, `keys_ahead` keys later, that fall to this step, in their order in memory."""
    builder = lanes.builder
    byte = ir.IntType(8).as_pointer()
    prefetch = ir.FunctionType(ir.VoidType(), [byte, INT32, INT32, INT32])
    ask = cgutils.get_or_insert_function(builder.module, prefetch, "llvm.prefetch.p0")
    reading, second_cache, data = (ir.Constant(INT32, number) for number in (0, 2, 1))
    ahead = lanes.at(builder.bitcast(line, byte), builder.mul(keys_ahead, stride))
    row_bytes = builder.mul(size, integer(ELEMENT_BYTES[kind]))
    panel = integer(PANEL)
    first = builder.udiv(builder.mul(panel, done), size)
    last = builder.udiv(builder.mul(panel, builder.add(done, integer(lanes.lanes))), size)
    with counting(builder, first, last, 1) as row:
        start = lanes.at(ahead, builder.mul(row, stride))
        with counting(builder, integer(0), row_bytes, _LINE_BYTES) as place:
            builder.call(ask, [lanes.at(start, place), reading, second_cache, data])
