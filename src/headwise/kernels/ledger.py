"""The running softmax of a block of rows, and how a tile is joined to what went before.

Each tile is softmaxed against its own maximum, so that a tile's share does not depend on the tiles around it;
two shares are joined by `exp(maximum - larger maximum)`.

A ledger is six arrays of `LEDGER_ROWS` float32 one behind the other, one entry a row.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types

from headwise.kernels.emission import FloatPointer, Lanes, counting, integer, native
from headwise.kernels.exponential import LOG2_E, exp2
from headwise.kernels.geometry import DESK_ROWS, PANEL
from headwise.kernels.host import GEOMETRY

LEDGER_ROWS = -(-DESK_ROWS // PANEL) * PANEL
"""The rows of a desk in whole registers of any width: rows are joined a register at a time."""

MAXIMUM, SUM, TILE_MAXIMUM, TILE_SUM, OLD_FACTOR, NEW_FACTOR = (LEDGER_ROWS * part for part in range(6))
LEDGER_FLOATS = 6 * LEDGER_ROWS


@native(FloatPointer, types.int64)
def join_tile(builder: ir.IRBuilder, ledger: ir.Value, count: ir.Value) -> None:
    """Join each row's tile to its running softmax and leave the factors of the old and the new output."""
    lanes = Lanes(builder, GEOMETRY.lanes)
    with counting(builder, integer(0), count, lanes.lanes) as row:

        def entry(part: int) -> ir.Value:
            return lanes.at(ledger, builder.add(row, integer(part)))

        before, tile = lanes.load(entry(MAXIMUM)), lanes.load(entry(TILE_MAXIMUM))
        maximum = lanes.larger(before, tile)
        shift = finite_shift(lanes, maximum)
        powers = (builder.fmul(builder.fsub(part, shift), lanes.constant(LOG2_E)) for part in (before, tile))
        old, new = (exp2(lanes, power) for power in powers)
        total = lanes.fma(lanes.load(entry(TILE_SUM)), new, builder.fmul(lanes.load(entry(SUM)), old))
        for part, value in ((MAXIMUM, maximum), (SUM, total), (OLD_FACTOR, old), (NEW_FACTOR, new)):
            lanes.store(value, entry(part))


def finite_shift(lanes: Lanes, maximum: ir.Value) -> ir.Value:
    """Return what is subtracted before exp: the maximum, or 0 where nothing was seen and it is -inf."""
    nothing = lanes.builder.fcmp_ordered("==", maximum, lanes.constant(float("-inf")))
    return lanes.builder.select(nothing, lanes.constant(0.0), maximum)
