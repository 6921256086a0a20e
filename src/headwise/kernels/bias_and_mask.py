"""A bias and a dense mask, as vector code: added to scores, taken from them, looked through beforehand.

What belongs to the keys of one row is its line. Where a line's elements lie side by side, or one serves all
keys, many are handled at once, else one after the other. Memory may end behind the last key asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from itertools import chain
from typing import NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils

from headwise.kernels.emission import (
    FLOAT,
    INT64,
    BytePointer,
    FloatPointer,
    IntegerPointer,
    Lanes,
    counting,
    integer,
    native,
    vector,
)
from headwise.kernels.geometry import PANEL, TILE
from headwise.kernels.host import GEOMETRY

_HIDDEN = float("-inf")
_REGISTER = GEOMETRY.lanes
_SIDE_BY_SIDE = 4 * GEOMETRY.lanes
"""Of how many keys the bias is compared at once: each comparison waits for the one before."""
_ROWS = 4
"""Rows whose masks are looked at together."""
_WORD = 64
"""Of how many keys the mask is looked at together: each is a bit of an integer."""

_ByStep = dict[ir.Value, list[ir.Value]]
"""Lines, by how many elements their elements lie apart."""

_LINES = (IntegerPointer, IntegerPointer, types.int64, types.int64, types.int64)


class _Lines(NamedTuple):
    """The lines of some rows, in the order of a function's arguments.

    - tensor: the line of head 0 and position 0; heads, positions: those of each row
    - head_stride, position_stride, step: how far apart lines lie, and the elements of one, in elements
    """

    tensor: ir.Value
    heads: ir.Value
    positions: ir.Value
    head_stride: ir.Value
    position_stride: ir.Value
    step: ir.Value

    def of_row(self, builder: ir.IRBuilder, row: ir.Value) -> ir.Value:
        """Return where a row's line begins."""
        head, position = (builder.load(builder.gep(places, [row])) for places in (self.heads, self.positions))
        across, down = builder.mul(head, self.head_stride), builder.mul(position, self.position_stride)
        return builder.gep(self.tensor, [builder.add(across, down)])


@native(types.int64, FloatPointer, FloatPointer, *_LINES, FloatPointer, types.int64, types.int64)
def add_bias(builder: ir.IRBuilder, rows: ir.Value, scores: ir.Value, *arguments: ir.Value) -> None:
    """Add the bias less the row's shift to the scores `[rows, TILE]` of the keys `start .. stop`."""
    *of_lines, shifts, start, stop = arguments
    lines = _Lines(*of_lines)
    with counting(builder, integer(0), rows, 1) as row:
        target = builder.gep(scores, [builder.mul(row, integer(TILE))])
        shift = builder.load(builder.gep(shifts, [row]))

        def add(lanes: Lanes, key: ir.Value, bias: ir.Value) -> None:
            hidden = lanes.constant(_HIDDEN)
            total = builder.fadd(lanes.load(target, key), builder.fsub(bias, lanes.splat(shift)))
            # Not the sum alone: the score of a hidden key may be NaN or infinite.
            hides = builder.fcmp_ordered("==", bias, hidden)
            lanes.store(builder.select(hides, hidden, total), target, key)

        _along(builder, {lines.step: [lines.of_row(builder, row)]}, start, stop, (_REGISTER, 1), add)


@native(types.int64, FloatPointer, BytePointer, *_LINES, types.int64, types.int64)
def hide_masked(builder: ir.IRBuilder, rows: ir.Value, scores: ir.Value, *arguments: ir.Value) -> None:
    """Make the scores `[rows, TILE]` of those keys `start .. stop` -inf that the mask hides."""
    *of_lines, start, stop = arguments
    lines = _Lines(*of_lines)
    with counting(builder, integer(0), rows, 1) as row:
        target = builder.gep(scores, [builder.mul(row, integer(TILE))])

        def hide(lanes: Lanes, key: ir.Value, mask: ir.Value) -> None:
            score = lanes.load(target, key)
            lanes.store(builder.select(_shown(builder, mask), score, lanes.constant(_HIDDEN)), target, key)

        _along(builder, {lines.step: [lines.of_row(builder, row)]}, start, stop, (_REGISTER, 1), hide)


@native(types.int64, BytePointer, *_LINES, types.int64, IntegerPointer, IntegerPointer, IntegerPointer)
def narrow_strip(builder: ir.IRBuilder, rows: ir.Value, *arguments: ir.Value) -> None:
    """Take the panels off both ends of `start .. stop` of which the mask shows no key to any row.

    Both are changed where they lie, and the strip is noted as partial where the mask hides anything. Keys
    from `end` on are not read.
    """
    *of_lines, end, start, stop, is_partial = arguments
    lines = _Lines(*of_lines)
    first, behind = builder.load(start), builder.load(stop)
    low, high, any_hidden = (cgutils.alloca_once(builder, INT64) for _ in range(3))
    for value, place in ((behind, low), (first, high), (builder.load(is_partial), any_hidden)):
        builder.store(value, place)

    def look(lanes: Lanes, key: ir.Value, *masks: ir.Value) -> None:
        by_any, by_all = reduce(builder.or_, masks), reduce(partial(_smaller, builder), masks)
        hides = builder.icmp_unsigned("!=", _bits(builder, by_all), ir.Constant(ir.IntType(lanes.lanes), -1))
        builder.store(builder.or_(builder.load(any_hidden), builder.zext(hides, INT64)), any_hidden)
        bits = _bits(builder, by_any)
        word = bits if lanes.lanes == _WORD else builder.zext(bits, INT64)
        shows, of_zero = builder.icmp_unsigned("!=", word, integer(0)), ir.Constant(ir.IntType(1), 0)
        begin = builder.add(key, builder.cttz(word, of_zero))
        until = builder.add(key, builder.sub(integer(_WORD), builder.ctlz(word, of_zero)))
        for found, place, is_farther in ((begin, low, "<"), (until, high, ">")):
            before = builder.load(place)
            is_new = builder.and_(shows, builder.icmp_signed(is_farther, found, before))
            builder.store(builder.select(is_new, found, before), place)

    last, last_row = _pick(builder, "<", behind, end), builder.sub(rows, integer(1))
    with counting(builder, integer(0), rows, _ROWS) as row:
        numbers = [_pick(builder, "<", builder.add(row, integer(more)), last_row) for more in range(_ROWS)]
        of_rows = [lines.of_row(builder, number) for number in numbers]
        _along(builder, {lines.step: of_rows}, first, last, (_WORD, PANEL, 1), look)
    builder.store(builder.and_(builder.load(low), integer(-PANEL)), start)
    builder.store(builder.and_(builder.add(builder.load(high), integer(PANEL - 1)), integer(-PANEL)), stop)
    builder.store(builder.load(any_hidden), is_partial)


@native(FloatPointer, types.int64, types.int64, types.int64, FloatPointer)
def largest_bias(
    builder: ir.IRBuilder, bias: ir.Value, step: ir.Value, start: ir.Value, stop: ir.Value, result: ir.Value
) -> None:
    """Leave the largest bias of the keys `start .. stop` of a line; -inf for none, NaN passed over."""
    _leave_largest(builder, {step: [bias]}, start, stop, result)


@native(FloatPointer, types.int64, BytePointer, types.int64, types.int64, types.int64, FloatPointer)
def largest_shown_bias(
    builder: ir.IRBuilder,
    bias: ir.Value,
    step: ir.Value,
    mask: ir.Value,
    mask_step: ir.Value,
    start: ir.Value,
    stop: ir.Value,
    result: ir.Value,
) -> None:
    """Leave the largest bias, as `largest_bias` does, of the keys that the mask shows."""
    _leave_largest(builder, {step: [bias], mask_step: [mask]}, start, stop, result)


def _leave_largest(
    builder: ir.IRBuilder, lines: _ByStep, start: ir.Value, stop: ir.Value, result: ir.Value
) -> None:
    widths = (_SIDE_BY_SIDE, _REGISTER, 1)
    largest = {width: cgutils.alloca_once(builder, vector(width)) for width in widths}
    for width, place in largest.items():
        builder.store(Lanes(builder, width).constant(_HIDDEN), place)

    def note(lanes: Lanes, _key: ir.Value, bias: ir.Value, *mask: ir.Value) -> None:
        for each in mask:
            bias = builder.select(_shown(builder, each), bias, lanes.constant(_HIDDEN))
        place = largest[lanes.lanes]
        builder.store(lanes.larger(bias, builder.load(place)), place)

    _along(builder, lines, start, stop, widths, note)
    lanes, width = Lanes(builder, 1), _SIDE_BY_SIDE
    found = builder.load(largest[width])
    while width > 1:
        width //= 2
        low, high = (lanes.shuffle(found, found, list(range(half, half + width))) for half in (0, width))
        found = lanes.larger(low, high)
        if width in largest:
            found = lanes.larger(found, builder.load(largest[width]))
    lanes.store(found, result)


def _along(
    builder: ir.IRBuilder,
    lines: _ByStep,
    start: ir.Value,
    stop: ir.Value,
    widths: tuple[int, ...],
    work: Callable[..., None],
) -> None:
    """Write `work` on the keys `start .. stop` of lines.

    It gets the first key and the elements of each line: as many at once as a width says, the largest first.
    """
    stop = _pick(builder, ">", start, stop)
    many = ir.Constant(ir.IntType(1), 1)
    for step in lines:
        many = builder.and_(many, builder.icmp_unsigned("<", step, integer(2)))
    for width in widths:
        lanes, until = Lanes(builder, width), stop
        if width > 1:
            whole = builder.and_(builder.sub(stop, start), integer(-width))
            until = builder.select(many, builder.add(start, whole), start)
        with counting(builder, start, until, width) as key:
            found = [_elements(lanes, step, those, key) for step, those in lines.items()]
            work(lanes, key, *chain.from_iterable(found))
        start = until


def _elements(lanes: Lanes, step: ir.Value, lines: list[ir.Value], key: ir.Value) -> list[ir.Value]:
    """Return the elements of each line from a key on: one, or many that lie side by side or are the same."""
    builder = lanes.builder
    if lanes.lanes == 1:
        return [lanes.load(builder.gep(line, [builder.mul(key, step)])) for line in lines]
    with builder.if_else(builder.icmp_unsigned("==", step, integer(0))) as (one_serves_all, many):
        with one_serves_all:
            ones = [Lanes(builder, 1).load(line) for line in lines]
            repeated = [lanes.shuffle(one, one, [0] * lanes.lanes) for one in ones]
            block_of_repeated = builder.block
        with many:
            loaded = [lanes.load(builder.gep(line, [key])) for line in lines]
            block_of_loaded = builder.block
    elements = [builder.phi(each.type) for each in loaded]
    for block, found in ((block_of_repeated, repeated), (block_of_loaded, loaded)):
        for element, incoming in zip(elements, found, strict=True):
            element.add_incoming(incoming, block)
    return elements


def _loaded(lanes: Lanes, place: ir.Value) -> ir.Value:
    """Return the vector that lies at a place, aligned or not."""
    element = place.type.pointee
    found = lanes.builder.load(lanes.builder.bitcast(place, vector(lanes.lanes, element).as_pointer()))
    found.align = 4 if element == FLOAT else 1
    return found


def _shown(builder: ir.IRBuilder, mask: ir.Value) -> ir.Value:
    return builder.icmp_unsigned("!=", mask, ir.Constant(mask.type, [0] * mask.type.count))


def _bits(builder: ir.IRBuilder, mask: ir.Value) -> ir.Value:
    """Return an integer with a bit for each byte, 1 where it is not 0."""
    return builder.bitcast(_shown(builder, mask), ir.IntType(mask.type.count))


def _smaller(builder: ir.IRBuilder, left: ir.Value, right: ir.Value) -> ir.Value:
    return builder.select(builder.icmp_unsigned("<", left, right), left, right)


def _pick(builder: ir.IRBuilder, comparison: str, left: ir.Value, right: ir.Value) -> ir.Value:
    """Return the one of two integers that comes before the other by a comparison."""
    return builder.select(builder.icmp_signed(comparison, left, right), left, right)
