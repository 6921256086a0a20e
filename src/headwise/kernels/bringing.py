"""Keys and values brought from the caller's memory, of any strides and element type, into panels."""

from __future__ import annotations

from headwise.kernels.emission import inner, leaf
from headwise.kernels.geometry import PANEL
from headwise.kernels.host import GEOMETRY
from headwise.kernels.memory import Bytes, Floats, line_of, moved
from headwise.kernels.packing import element_bytes, pack_full_key_panel, widen_number, widen_row
from headwise.kernels.problem import Desk, Problem
from headwise.kernels.rows import padded_width

_LANES = GEOMETRY.lanes


@inner
def bring_keys(problem: Problem, desk: Desk, batch: int, kv_head: int, first: int, panel: Floats) -> None:
    """Fill one panel `[head_dim, PANEL]` with the keys from `first` on; 0 behind the last key."""
    keys = line_of(problem.key, problem.key_strides, batch, kv_head, first)
    count = min(PANEL, problem.kv_len - first)
    bring_columns(problem.kind, desk, keys, problem.key_strides, count, problem.head_dim, panel)


@leaf
def bring_columns(
    kind: int,
    desk: Desk,
    lines: Bytes,
    strides: tuple[int, int, int, int],
    count: int,
    width: int,
    panel: Floats,
) -> None:
    """Fill one panel `[width, PANEL]` with lines of so many numbers, one a column; 0 behind the last."""
    whole = 0
    if count == PANEL and strides[3] == element_bytes(kind):
        whole = width // _LANES * _LANES
        pack_full_key_panel(kind, lines, strides[2], whole, panel)
    for depth in range(whole, width):
        for column in range(count):
            widen_number(kind, moved(lines, column * strides[2] + depth * strides[3]), desk.number)
            panel[depth * PANEL + column] = desk.number[0]
        for column in range(count, PANEL):
            panel[depth * PANEL + column] = 0.0


@inner
def bring_values(
    problem: Problem,
    desk: Desk,
    batch: int,
    kv_head: int,
    first: int,
    count: int,
    panels: Floats,
    panel_stride: int,
) -> None:
    """Fill the panels `[keys, PANEL]`, `panel_stride` numbers apart, with the values from `first` on."""
    lines = line_of(problem.value, problem.value_strides, batch, kv_head, first)
    width = problem.value_head_dim
    bring_lines(problem.kind, desk, lines, problem.value_strides, count, width, panels, panel_stride)


@leaf
def bring_lines(
    kind: int,
    desk: Desk,
    lines: Bytes,
    strides: tuple[int, int, int, int],
    count: int,
    width: int,
    panels: Floats,
    panel_stride: int,
) -> None:
    """Fill the panels `[lines, PANEL]`, `panel_stride` numbers apart, with lines of so many numbers."""
    whole = 0
    if strides[3] == element_bytes(kind):
        whole = width // PANEL * PANEL
    for number in range(count):
        line, target = moved(lines, number * strides[2]), moved(panels, number * PANEL)
        widen_row(kind, line, whole, panel_stride, target)
        for column in range(whole, padded_width(width)):
            desk.number[0] = 0.0
            if column < width:
                widen_number(kind, moved(line, column * strides[3]), desk.number)
            target[column // PANEL * panel_stride + column % PANEL] = desk.number[0]
