"""How much memory a thread works in, and what lies where in it."""

from __future__ import annotations

from headwise.kernels.emission import inner
from headwise.kernels.geometry import BLOCK_ROWS, LARGEST_HEAD_DIM, PANEL, TILE
from headwise.kernels.ledger import LEDGER_FLOATS
from headwise.kernels.memory import Floats, Integers, moved
from headwise.kernels.problem import Desk

_BLOCK_FLOATS = BLOCK_ROWS * LARGEST_HEAD_DIM
_PANEL_FLOATS = LARGEST_HEAD_DIM * PANEL
_LINE = 16
"""A cache line of float32. One is left free between desks: no two threads write to the same."""

_USED_FLOATS = 2 * _BLOCK_FLOATS + BLOCK_ROWS * TILE + LEDGER_FLOATS + 2 * _PANEL_FLOATS + 3 * BLOCK_ROWS + 1
DESK_FLOATS = -(-_USED_FLOATS // _LINE) * _LINE + _LINE
"""float32 numbers of one desk."""


def desk_integers(group_size: int) -> int:
    """Return how many 64-bit integers one desk needs beside, the list of query heads among them."""
    return 8 * BLOCK_ROWS + group_size + _LINE


@inner
def desk_of(floats: Floats, integers: Integers) -> tuple[Desk, Integers]:
    """Return the desk laid out at these places, and where the list of query heads lies."""
    weights = moved(floats, _BLOCK_FLOATS)
    outputs = moved(weights, BLOCK_ROWS * TILE)
    ledger = moved(outputs, _BLOCK_FLOATS)
    panel = moved(ledger, LEDGER_FLOATS)
    lines = moved(panel, _PANEL_FLOATS)
    shifts = moved(lines, _PANEL_FLOATS)
    divisors, gates = moved(shifts, BLOCK_ROWS), moved(shifts, 2 * BLOCK_ROWS)
    number = moved(shifts, 3 * BLOCK_ROWS)
    positions, heads, starts = integers, moved(integers, BLOCK_ROWS), moved(integers, 2 * BLOCK_ROWS)
    stops, strip_starts = moved(integers, 3 * BLOCK_ROWS), moved(integers, 4 * BLOCK_ROWS)
    strip_stops, strip_partial = moved(integers, 5 * BLOCK_ROWS), moved(integers, 6 * BLOCK_ROWS)
    offsets, group = moved(integers, 7 * BLOCK_ROWS), moved(integers, 8 * BLOCK_ROWS)
    desk = Desk(
        floats, weights, outputs, ledger, shifts, divisors, gates, panel, lines, number,
        positions, heads, starts, stops, offsets, strip_starts, strip_stops, strip_partial,
    )  # fmt: skip
    return desk, group
