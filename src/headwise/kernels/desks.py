"""How much memory a thread works in, and what lies where in it."""

from __future__ import annotations

from headwise.kernels.emission import inner
from headwise.kernels.geometry import DESK_ROWS, LARGEST_HEAD_DIM, LINE, PANEL, TILE
from headwise.kernels.ledger import LEDGER_FLOATS
from headwise.kernels.memory import Floats, Integers, as_integers, moved
from headwise.kernels.problem import Desk

_ROWS_FLOATS = DESK_ROWS * LARGEST_HEAD_DIM
_PANEL_FLOATS = LARGEST_HEAD_DIM * PANEL
_USED_FLOATS = 2 * _ROWS_FLOATS + DESK_ROWS * TILE + LEDGER_FLOATS + 2 * _PANEL_FLOATS + 3 * DESK_ROWS + 1
_FLOATS = -(-_USED_FLOATS // LINE) * LINE


def desk_floats(group_size: int) -> int:
    """Return the size of one desk in float32 numbers, which those of its 64-bit integers count double.

    A line is left free between desks: no two threads write to the same.
    """
    integers = 8 * DESK_ROWS + group_size
    return _FLOATS + -(-2 * integers // LINE) * LINE + LINE


@inner
def desk_at(floats: Floats) -> tuple[Desk, Integers]:
    """Return the desk laid out at this place, and where its list of query heads lies."""
    integers = as_integers(moved(floats, _FLOATS))
    weights = moved(floats, _ROWS_FLOATS)
    outputs = moved(weights, DESK_ROWS * TILE)
    ledger = moved(outputs, _ROWS_FLOATS)
    panel = moved(ledger, LEDGER_FLOATS)
    lines = moved(panel, _PANEL_FLOATS)
    shifts = moved(lines, _PANEL_FLOATS)
    divisors, gates = moved(shifts, DESK_ROWS), moved(shifts, 2 * DESK_ROWS)
    number = moved(shifts, 3 * DESK_ROWS)
    positions, heads, starts = integers, moved(integers, DESK_ROWS), moved(integers, 2 * DESK_ROWS)
    stops, strip_starts = moved(integers, 3 * DESK_ROWS), moved(integers, 4 * DESK_ROWS)
    strip_stops, strip_partial = moved(integers, 5 * DESK_ROWS), moved(integers, 6 * DESK_ROWS)
    offsets, group = moved(integers, 7 * DESK_ROWS), moved(integers, 8 * DESK_ROWS)
    desk = Desk(
        floats, weights, outputs, ledger, shifts, divisors, gates, panel, lines, number,
        positions, heads, starts, stops, offsets, strip_starts, strip_stops, strip_partial,
    )  # fmt: skip
    return desk, group
