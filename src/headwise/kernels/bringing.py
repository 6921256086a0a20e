"""Keys and values brought from the caller's memory, of any strides and element type, into panels."""

from __future__ import annotations

from headwise.kernels.emission import inner
from headwise.kernels.geometry import PANEL
from headwise.kernels.host import GEOMETRY
from headwise.kernels.memory import Floats, line_of, moved
from headwise.kernels.packing import element_bytes, pack_full_key_panel, widen_number, widen_row
from headwise.kernels.problem import Desk, Problem
from headwise.kernels.rows import padded_width

_LANES = GEOMETRY.lanes


@inner
def bring_keys(problem: Problem, desk: Desk, batch: int, kv_head: int, first: int, panel: Floats) -> None:
    """Fill one panel `[head_dim, PANEL]` with the keys from `first` on; 0 behind the last key."""
    strides = problem.key_strides
    keys = line_of(problem.key, strides, batch, kv_head, first)
    count = min(PANEL, problem.kv_len - first)
    whole = 0
    if count == PANEL and strides[3] == element_bytes(problem.kind):
        whole = problem.head_dim // _LANES * _LANES
        pack_full_key_panel(problem.kind, keys, strides[2], whole, panel)
    for depth in range(whole, problem.head_dim):
        for column in range(count):
            widen_number(problem.kind, moved(keys, column * strides[2] + depth * strides[3]), desk.number)
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
    strides = problem.value_strides
    whole = 0
    if strides[3] == element_bytes(problem.kind):
        whole = problem.value_head_dim // PANEL * PANEL
    width = padded_width(problem.value_head_dim)
    for key in range(count):
        line = line_of(problem.value, strides, batch, kv_head, first + key)
        target = moved(panels, key * PANEL)
        widen_row(problem.kind, line, whole, panel_stride, target)
        for column in range(whole, width):
            desk.number[0] = 0.0
            if column < problem.value_head_dim:
                widen_number(problem.kind, moved(line, column * strides[3]), desk.number)
            target[column // PANEL * panel_stride + column % PANEL] = desk.number[0]
