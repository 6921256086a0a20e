"""The backward pass: the gradients of query, key, value, bias and sinks, from the weights made once more.

A stretch of keys is an entry of the list of work. It is packed once, meets every block of rows that sees any
of it, and sums up its own keys' and values' gradients in memory of its thread. The query's gradients are
summed over stretches: those that meet a block take turns, in the order of the keys, in memory they share. So
no number hangs on the threads, and memory grows with the rows and the keys, not with their product.

Blocks are gone through from the last to the first: under a causal mask a stretch then follows the one before
it at one block's distance, and nobody waits long.

Source: Dao et al. 2022, algorithm 4 (the recomputation); but weights are made from each row's maximum and
sum, not from logsumexp, whose rounding grows with the scores.
"""

from __future__ import annotations

from headwise.kernels.backward_rows import (
    ask_for_block,
    bring_block,
    find_lines,
    place_block,
    stretches_of,
    sum_up_rows,
    weigh_block,
)
from headwise.kernels.backward_sums import add_to_bias, add_to_keys, add_to_queries, write_sinks
from headwise.kernels.bringing import bring_columns, bring_lines
from headwise.kernels.derivatives import multiply_by_slopes
from headwise.kernels.drafts import Draft, Shared
from headwise.kernels.emission import inner, leaf
from headwise.kernels.geometry import PANEL, STRETCH, TILE
from headwise.kernels.gradients import Gradients
from headwise.kernels.host import BLOCK_ROWS
from headwise.kernels.memory import Floats, Integers, ask_for, fetch_add, line_of, moved
from headwise.kernels.packing import finish_rows, times_zero
from headwise.kernels.problem import Desk, Problem
from headwise.kernels.rows import padded_width
from headwise.kernels.schedule import wait_for
from headwise.kernels.tiles import STRIP, strip_count


@leaf
def stretch_count(problem: Problem) -> int:
    """Return how many stretches the keys make; one if there are none, for the rows must be written."""
    return max(1, (problem.kv_len + STRETCH - 1) // STRETCH)


@inner
def differentiate_stretch(
    problem: Problem,
    desk: Desk,
    draft: Draft,
    gradients: Gradients,
    batch: int,
    kv_head: int,
    heads: Integers,
    stretch: int,
    shared: Shared,
) -> None:
    """Work at one stretch of the keys of a KV head."""
    tile = stretch * STRETCH
    keys = max(0, min(STRETCH, problem.kv_len - tile))
    _bring_stretch(problem, desk, draft, batch, kv_head, tile, keys)
    times_zero(draft.key_lines, STRETCH * padded_width(problem.head_dim), desk.number)
    keys_are_finite = desk.number[0] == 0.0
    group_size = problem.num_heads // problem.num_kv_heads
    rows = group_size * problem.seq_len
    for block in range((rows + BLOCK_ROWS - 1) // BLOCK_ROWS - 1, -1, -1):
        count = min(BLOCK_ROWS, rows - block * BLOCK_ROWS)
        low, high = stretches_of(problem, batch, group_size, block)
        if low <= stretch <= high:
            ask_for_block(problem, gradients, batch, heads, group_size, block - 1)
            place_block(problem, desk, batch, heads, group_size, block, count)
            _differentiate_block(
                problem, desk, draft, gradients, batch, count, tile, stretch - low, keys_are_finite, shared,
                block,
            )  # fmt: skip
            if stretch == high and gradients.has_query:
                sums = moved(shared.grad_queries, block * BLOCK_ROWS * padded_width(problem.head_dim))
                _write_queries(problem, desk, gradients, batch, count, sums)
            fetch_add(moved(shared.turns, block), 1)
    _write_keys(problem, desk, draft, gradients, batch, kv_head, tile, keys)


@inner
def _bring_stretch(
    problem: Problem, desk: Desk, draft: Draft, batch: int, kv_head: int, tile: int, keys: int
) -> None:
    """Pack keys and values of the stretch, and begin the sums of their gradients."""
    width, value_width = padded_width(problem.head_dim), padded_width(problem.value_head_dim)
    key = line_of(problem.key, problem.key_strides, batch, kv_head, tile)
    value = line_of(problem.value, problem.value_strides, batch, kv_head, tile)
    for panel in range(0, keys, PANEL):
        count = min(PANEL, keys - panel)
        bring_columns(
            problem.kind, desk, moved(key, panel * problem.key_strides[2]), problem.key_strides, count,
            problem.head_dim, moved(draft.key_columns, panel * problem.head_dim),
        )  # fmt: skip
        bring_columns(
            problem.kind, desk, moved(value, panel * problem.value_strides[2]), problem.value_strides, count,
            problem.value_head_dim, moved(draft.value_columns, panel * problem.value_head_dim),
        )  # fmt: skip
    for place in range(STRETCH * width):
        draft.key_lines[place], draft.grad_keys[place] = 0.0, 0.0
    for place in range(STRETCH * value_width):
        draft.grad_values[place] = 0.0
    bring_lines(
        problem.kind, desk, key, problem.key_strides, keys, problem.head_dim, draft.key_lines, STRETCH * PANEL
    )


@leaf
def _differentiate_block(
    problem: Problem,
    desk: Desk,
    draft: Draft,
    gradients: Gradients,
    batch: int,
    count: int,
    tile: int,
    turn: int,
    keys_are_finite: bool,
    shared: Shared,
    block: int,
) -> None:
    """Let a stretch and a block of rows meet; `turn` says how many stretches the block has met before."""
    wait_for(moved(shared.turns, block), turn)
    bring_block(problem, desk, draft, gradients, batch, count)
    _know_sums(problem, desk, draft, gradients, batch, count, turn, shared, block)
    start, stop = weigh_block(problem, desk, draft, batch, count, tile)
    if start < stop:
        if gradients.has_bias:
            add_to_bias(problem, desk, draft, gradients, batch, count, tile)
        if problem.softcap != 0.0:
            for strip in range(strip_count(count)):
                row = strip * STRIP
                multiply_by_slopes(
                    min(STRIP, count - row), moved(draft.grad_weights, row * TILE),
                    moved(draft.slopes, row * TILE), desk.strip_starts[strip], desk.strip_stops[strip],
                )  # fmt: skip
        if gradients.has_value:
            add_to_keys(
                problem, desk, batch, count, tile, desk.weights, draft.upstream, problem.value_head_dim,
                draft.grad_values, start, stop,
            )  # fmt: skip
        if gradients.has_key:
            add_to_keys(
                problem, desk, batch, count, tile, draft.grad_weights, desk.queries, problem.head_dim,
                draft.grad_keys, start, stop,
            )  # fmt: skip
        if gradients.has_query:
            sums = moved(shared.grad_queries, block * BLOCK_ROWS * padded_width(problem.head_dim))
            add_to_queries(problem, desk, draft, batch, count, tile, keys_are_finite, sums)


@leaf
def _know_sums(
    problem: Problem,
    desk: Desk,
    draft: Draft,
    gradients: Gradients,
    batch: int,
    count: int,
    turn: int,
    shared: Shared,
    block: int,
) -> None:
    """Take over what the first stretch of a block has worked out for all, or, being it, work it out."""
    first, width = block * BLOCK_ROWS, padded_width(problem.head_dim)
    if turn > 0:
        for row in range(count):
            draft.sums[row] = shared.sums[first + row]
        for place in range(first * width, (first + count) * width, PANEL):
            ask_for(moved(shared.grad_queries, place))
        return
    sum_up_rows(problem, desk, draft, gradients, batch, count)
    for row in range(count):
        shared.sums[first + row] = draft.sums[row]
    if gradients.has_sinks:
        write_sinks(problem, desk, draft, gradients, batch, count)
    for place in range(first * width, (first + count) * width):
        shared.grad_queries[place] = 0.0


@inner
def _write_queries(
    problem: Problem, desk: Desk, gradients: Gradients, batch: int, count: int, sums: Floats
) -> None:
    """Write the gradients of a block's queries: their products went with the keys, and with no scale."""
    find_lines(desk, gradients.query_strides, batch, count)
    for row in range(count):
        desk.divisors[row], desk.gates[row] = 1.0, problem.scale
    finish_rows(
        problem.kind, count, sums, padded_width(problem.head_dim), problem.head_dim, desk.divisors,
        desk.gates, gradients.query, desk.offsets,
    )  # fmt: skip


@inner
def _write_keys(
    problem: Problem,
    desk: Desk,
    draft: Draft,
    gradients: Gradients,
    batch: int,
    kv_head: int,
    tile: int,
    keys: int,
) -> None:
    """Write the gradients of the stretch's keys and values."""
    for row in range(BLOCK_ROWS):
        desk.divisors[row], desk.gates[row] = 1.0, 1.0
    for first in range(0, keys, BLOCK_ROWS):
        count = min(BLOCK_ROWS, keys - first)
        if gradients.has_key:
            width = padded_width(problem.head_dim)
            _find_keys(desk, gradients.key_strides, batch, kv_head, tile + first, count)
            finish_rows(
                problem.kind, count, moved(draft.grad_keys, first * width), width, problem.head_dim,
                desk.divisors, desk.gates, gradients.key, desk.offsets,
            )  # fmt: skip
        if gradients.has_value:
            width = padded_width(problem.value_head_dim)
            _find_keys(desk, gradients.value_strides, batch, kv_head, tile + first, count)
            finish_rows(
                problem.kind, count, moved(draft.grad_values, first * width), width, problem.value_head_dim,
                desk.divisors, desk.gates, gradients.value, desk.offsets,
            )  # fmt: skip


@leaf
def _find_keys(
    desk: Desk, strides: tuple[int, int, int, int], batch: int, kv_head: int, first: int, count: int
) -> None:
    """Note where the keys `first .. first + count` lie in a tensor that has the key's axes."""
    for number in range(count):
        desk.offsets[number] = batch * strides[0] + kv_head * strides[1] + (first + number) * strides[2]
