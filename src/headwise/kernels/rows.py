"""A block of rows: brought to the desk, and written out when every tile was seen.

The query heads of one KV head are folded into the rows, query by query: row `i * heads + h` is query i of the
h-th head that is not gated to 0. So keys and values pass by once for the whole group.
"""

from __future__ import annotations

import math

import numpy as np

from headwise.kernels.bias_and_mask import largest_bias, largest_shown_bias
from headwise.kernels.emission import inner, leaf
from headwise.kernels.geometry import PANEL
from headwise.kernels.ledger import (
    LEDGER_ROWS,
    MAXIMUM,
    OLD_FACTOR,
    SUM,
    TILE_MAXIMUM,
    TILE_SUM,
    join_tile,
)
from headwise.kernels.memory import Bytes, Floats, Integers, line_of, moved
from headwise.kernels.packing import element_bytes, finish_rows, scale_rows
from headwise.kernels.problem import Desk, Problem

_NOTHING = np.float32(-np.inf)


@leaf
def padded_width(value_head_dim: int) -> int:
    """Return value_head_dim rounded up to whole panels."""
    return (value_head_dim + PANEL - 1) // PANEL * PANEL


@leaf
def gate_of(problem: Problem, batch: int, head: int) -> np.float32:
    """Return what the output of a head is multiplied by."""
    return problem.gates[batch * problem.gate_stride + head] if problem.has_gates else np.float32(1.0)


@inner
def working_heads(problem: Problem, batch: int, kv_head: int, heads: Integers) -> int:
    """List the query heads of a KV head that have to be computed; return how many there are."""
    group_size = problem.num_heads // problem.num_kv_heads
    count = 0
    for head in range(kv_head * group_size, (kv_head + 1) * group_size):
        if problem.has_logsumexp or gate_of(problem, batch, head) != 0.0:
            heads[count] = head
            count += 1
    return count


@inner
def bring_rows(
    problem: Problem, desk: Desk, batch: int, heads: Integers, num_heads: int, first: int, count: int
) -> None:
    """Put rows `first .. first + count` on the desk, with nothing seen yet."""
    place_rows(problem, desk, batch, heads, num_heads, first, count)
    bring_queries(problem, desk, count)
    for place in range(count * padded_width(problem.value_head_dim)):
        desk.outputs[place] = 0.0
    if problem.has_bias:
        _note_shifts(problem, desk, batch, count)


@leaf
def place_rows(
    problem: Problem, desk: Desk, batch: int, heads: Integers, num_heads: int, first: int, count: int
) -> None:
    """Note which rows `first .. first + count` are, what they see and where their queries lie."""
    position, head = divmod(first, num_heads)
    for row in range(count):
        place_row(problem, desk, batch, row, heads[head], position)
        desk.ledger[MAXIMUM + row], desk.ledger[SUM + row] = _NOTHING, 0.0
        head += 1
        if head == num_heads:
            position, head = position + 1, 0


@leaf
def place_row(problem: Problem, desk: Desk, batch: int, row: int, head: int, position: int) -> None:
    """Note that a row of the desk is that query of that head."""
    strides = problem.query_strides
    desk.positions[row], desk.heads[row] = position, head
    desk.offsets[row] = batch * strides[0] + head * strides[1] + position * strides[2]
    place = batch * problem.interval_stride + position
    desk.starts[row], desk.stops[row] = problem.starts[place], problem.stops[place]
    desk.shifts[row] = 0.0


@inner
def bring_queries(problem: Problem, desk: Desk, count: int) -> None:
    """Bring the queries of the rows on the desk, scaled."""
    step = problem.query_strides[3]
    if step == element_bytes(problem.kind):
        scale_rows(
            problem.kind, count, problem.query, desk.offsets, problem.head_dim, problem.scale, desk.queries
        )
        return
    for row in range(count):
        for depth in range(problem.head_dim):
            target = moved(desk.queries, row * problem.head_dim + depth)
            scale_rows(problem.kind, 1, problem.query, moved(desk.offsets, row), 1, problem.scale, target)
            desk.offsets[row] += step


@leaf
def mask_line(problem: Problem, desk: Desk, batch: int, row: int) -> Bytes:
    """Return the mask of a row's keys; they lie `mask_strides[3]` apart."""
    return line_of(problem.mask, problem.mask_strides, batch, desk.heads[row], desk.positions[row])


@leaf
def bias_line(problem: Problem, desk: Desk, batch: int, row: int) -> Floats:
    """Return the bias of a row's keys; they lie `bias_strides[3]` apart."""
    return line_of(problem.bias, problem.bias_strides, batch, desk.heads[row], desk.positions[row])


@inner
def _note_shifts(problem: Problem, desk: Desk, batch: int, count: int) -> None:
    """Note what is taken off each row's bias: the largest that it sees, or more if its sink lies higher.

    However large the bias is, the scores keep their digits; and where all of it lies far below 0, so does the
    sink, beside which the keys then weigh nothing.
    """
    heads_share = problem.bias_strides[1] == 0 and (not problem.has_mask or problem.mask_strides[1] == 0)
    for row in range(count):
        if heads_share and row > 0 and desk.positions[row] == desk.positions[row - 1]:
            desk.shifts[row] = desk.shifts[row - 1]
        else:
            _note_largest(problem, desk, batch, row)
    for row in range(count):
        largest = desk.shifts[row]
        if largest == _NOTHING:
            desk.shifts[row] = 0.0
        elif largest < 0.0 and problem.has_sinks:
            desk.shifts[row] = max(largest, min(problem.sinks[desk.heads[row]], np.float32(0.0)))


@leaf
def _note_largest(problem: Problem, desk: Desk, batch: int, row: int) -> None:
    """Note the largest bias that a row sees."""
    bias, step, found = bias_line(problem, desk, batch, row), problem.bias_strides[3], moved(desk.shifts, row)
    start, stop = desk.starts[row], desk.stops[row]
    if problem.has_mask:
        mask = mask_line(problem, desk, batch, row)
        largest_shown_bias(bias, step, mask, problem.mask_strides[3], start, stop, found)
    else:
        largest_bias(bias, step, start, stop, found)


@inner
def sees_any(problem: Problem, desk: Desk, batch: int, row: int) -> bool:
    """Return whether a row sees any key."""
    for key in range(desk.starts[row], desk.stops[row]):
        if sees(problem, desk, batch, row, key):
            return True
    return False


@leaf
def sees(problem: Problem, desk: Desk, batch: int, row: int, key: int) -> bool:
    """Return whether a row sees a key."""
    if key < desk.starts[row] or key >= desk.stops[row]:
        return False
    if problem.has_mask and mask_line(problem, desk, batch, row)[key * problem.mask_strides[3]] == 0:
        return False
    step = problem.bias_strides[3]
    hidden = problem.has_bias and bias_line(problem, desk, batch, row)[key * step] == _NOTHING
    return not hidden


@inner
def write_rows(problem: Problem, desk: Desk, batch: int, count: int) -> None:
    """Let the sinks take their share and write output and logsumexp."""
    width = padded_width(problem.value_head_dim)
    if problem.has_sinks:
        _join_sinks(problem, desk, batch, count, width)
    for row in range(count):
        _settle(problem, desk, batch, row)
    finish_rows(
        problem.kind, count, desk.outputs, width, problem.value_head_dim, desk.divisors, desk.gates,
        problem.output, desk.offsets,
    )  # fmt: skip


@leaf
def _settle(problem: Problem, desk: Desk, batch: int, row: int) -> None:
    """Note where a row is written and what it is divided and multiplied by, and write its logsumexp."""
    strides = problem.output_strides
    position, head, total = desk.positions[row], desk.heads[row], desk.ledger[SUM + row]
    desk.offsets[row] = batch * strides[0] + head * strides[1] + position * strides[2]
    desk.divisors[row], desk.gates[row] = total, gate_of(problem, batch, head)
    # Of a row that sees nothing 0 remains. One that sees keys at -inf alone has no softmax: 0 / 0.
    if total == 0.0 and not sees_any(problem, desk, batch, row):
        desk.divisors[row], desk.gates[row] = 1.0, 0.0  # not even a gate that is NaN shows there
    if desk.gates[row] == 0.0:
        desk.divisors[row], desk.gates[row] = 1.0, 0.0  # -0.0 would show
        width = padded_width(problem.value_head_dim)
        for column in range(row * width, row * width + width):
            desk.outputs[column] = 0.0
    place = (batch * problem.num_heads + head) * problem.seq_len + position
    if problem.has_sums:
        problem.maxima[place], problem.sums[place] = desk.ledger[MAXIMUM + row], total
    if problem.has_shifts:
        problem.shifts[place] = desk.shifts[row]
    if problem.has_logsumexp:
        if total == 0.0:
            problem.logsumexp[place] = _NOTHING
        else:
            found = np.float32(math.log(total)) + desk.ledger[MAXIMUM + row]
            problem.logsumexp[place] = found + desk.shifts[row]


@inner
def _join_sinks(problem: Problem, desk: Desk, batch: int, count: int, width: int) -> None:
    """Join each row to its sink: a tile of one key whose value is 0. A row that saw nothing stays empty."""
    for row in range(LEDGER_ROWS):
        desk.ledger[TILE_MAXIMUM + row] = _NOTHING
        desk.ledger[TILE_SUM + row] = 0.0
    for row in range(count):
        if desk.ledger[SUM + row] != 0.0 or sees_any(problem, desk, batch, row):
            sink = problem.sinks[desk.heads[row]] - desk.shifts[row]
            desk.ledger[TILE_MAXIMUM + row] = sink
            desk.ledger[TILE_SUM + row] = 1.0
    join_tile(desk.ledger, count)
    for row in range(count):
        factor = desk.ledger[OLD_FACTOR + row]
        for column in range(width):
            desk.outputs[row * width + column] *= factor


@inner
def write_skipped_heads(problem: Problem, batch: int, kv_head: int) -> None:
    """Write zeros for the query heads of a KV head that `working_heads` leaves out."""
    group_size = problem.num_heads // problem.num_kv_heads
    for head in range(kv_head * group_size, (kv_head + 1) * group_size):
        if problem.has_logsumexp or gate_of(problem, batch, head) != 0.0:
            continue
        for position in range(problem.seq_len):
            line = line_of(problem.output, problem.output_strides, batch, head, position)
            for byte in range(problem.value_head_dim * element_bytes(problem.kind)):
                line[byte] = 0
