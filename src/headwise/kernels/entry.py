"""The way into compiled code: a function of one frame, and a thread that calls it works at the problem."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cfunc, njit, types

from headwise.kernels.backward import differentiate_stretch, stretch_count
from headwise.kernels.careful import mend_rows
from headwise.kernels.drafts import draft_at, packed_draft_floats, packed_shared_floats, shared_at
from headwise.kernels.emission import IntegerPointer, write_addresses
from headwise.kernels.frame import (
    buffers_of,
    counters_of,
    findings_of,
    gradients_of,
    problem_at,
    ring_of,
    seat_at,
)
from headwise.kernels.geometry import TILE
from headwise.kernels.host import BLOCK_ROWS
from headwise.kernels.memory import Integers, moved, pointer_to, set_float_mode
from headwise.kernels.packed import attend_block, packed_head_floats
from headwise.kernels.rows import working_heads, write_skipped_heads
from headwise.kernels.schedule import (
    FINISHED,
    PER_HEAD,
    block_count,
    group_rows,
    head_at,
    head_count,
    note_arrival,
    pack_if_seen,
    places_for_shares,
    streamed_chunks,
    streamed_entry,
    take_entry,
    tick_off,
    tile_count,
    visible_keys,
    wait_for,
    whole_heads,
)
from headwise.kernels.streamed import CHUNK_TILES, attend_chunk, join_shares, share_size
from headwise.kernels.visit import chunk_count, key_floats, pack_keys, visit_chunk
from headwise.kernels.ways import GROUPS

_IEEE = np.int32(0x1F80)
"""x86's MXCSR as it is when a program starts: to nearest, denormals kept. The caller may have told torch to
flush them, and the bits would depend on which thread did what."""


def compile_packed(source: str, *, on_disk: bool) -> Any:
    """Return the compiled way through `packed`; `source` names all it is made from.

    Every thread that works at a problem calls it with the same frame. It comes back when all entries of the
    list of work are done: at once, to a thread that comes when none is left.
    """

    def entry(frame: Integers) -> None:
        callers_mode = set_float_mode(_IEEE)
        problem, counters, buffers, ring = (
            problem_at(frame), counters_of(frame), buffers_of(frame), ring_of(frame),
        )  # fmt: skip
        desk, group, _ = seat_at(frame)
        heads, tiles, blocks = head_count(problem), tile_count(problem), block_count(problem)
        packed_tiles, done_blocks = moved(counters, PER_HEAD), moved(counters, PER_HEAD + heads)
        size = packed_head_floats(problem.kv_len, problem.head_dim, problem.value_head_dim)
        whole, parts = whole_heads(heads, ring), tiles + blocks
        count = whole + (heads - whole) * parts
        note_arrival(counters, count)
        taken = take_entry(counters)
        while taken < count:
            head, first, last = taken, 0, parts
            if taken >= whole:
                head, first = divmod(taken - whole + whole * parts, parts)
                last = first + 1
            batch, kv_head = divmod(head, problem.num_kv_heads)
            packed = moved(buffers, head % ring * size)
            for number in range(first, last):
                if number < tiles:
                    if head >= ring:
                        wait_for(moved(done_blocks, head - ring), blocks)
                    pack_if_seen(problem, desk, batch, kv_head, number * TILE, packed)
                    tick_off(moved(packed_tiles, head))
                else:
                    wait_for(moved(packed_tiles, head), tiles)
                    block = blocks - 1 - (number - tiles)  # under a causal mask the last rows take longest
                    if block == 0:
                        write_skipped_heads(problem, batch, kv_head)
                    rows = attend_block(problem, desk, batch, kv_head, group, block * BLOCK_ROWS, packed)
                    mend_rows(problem, desk, batch, kv_head, rows)
                    tick_off(moved(done_blocks, head))
            tick_off(moved(counters, FINISHED))
            taken = take_entry(counters)
        wait_for(moved(counters, FINISHED), count)
        set_float_mode(callers_mode)

    return _compiled(entry, "packed", source, on_disk=on_disk)


def compile_streamed(source: str, *, on_disk: bool) -> Any:
    """Return the compiled way through `streamed`, called as that through `packed` is.

    The loop stands in both: what Numba keeps on disk may not close over the function it calls.
    """

    def entry(frame: Integers) -> None:
        callers_mode = set_float_mode(_IEEE)
        problem, counters, buffers, ring = (
            problem_at(frame), counters_of(frame), buffers_of(frame), ring_of(frame),
        )  # fmt: skip
        desk, group, _ = seat_at(frame)
        chunks = streamed_chunks(problem)
        heads = head_count(problem)
        size = tile_count(problem) * share_size(group_rows(problem), problem.value_head_dim)
        places, count = places_for_shares(heads, ring, size), heads * chunks
        note_arrival(counters, count)
        taken = take_entry(counters)
        while taken < count:
            turn, number = streamed_entry(taken, heads, chunks, ring)
            batch, kv_head = divmod(head_at(turn, heads, ring), problem.num_kv_heads)
            done = moved(counters, PER_HEAD + turn)  # its chunks, and then the joining
            if turn >= places:
                wait_for(moved(counters, PER_HEAD + turn - places), chunks + 1)
            shares = moved(buffers, turn % places * size)
            low, high = visible_keys(problem, batch)
            first, last = low // TILE, (high + TILE - 1) // TILE
            begin, end = max(number * CHUNK_TILES, first), min((number + 1) * CHUNK_TILES, last)
            attend_chunk(problem, desk, batch, kv_head, group, begin, end, shares)
            if tick_off(done) == chunks - 1:
                write_skipped_heads(problem, batch, kv_head)
                rows = join_shares(problem, desk, batch, kv_head, group, first, last, shares)
                mend_rows(problem, desk, batch, kv_head, rows)
                tick_off(done)
            tick_off(moved(counters, FINISHED))
            taken = take_entry(counters)
        wait_for(moved(counters, FINISHED), count)
        set_float_mode(callers_mode)

    return _compiled(entry, "streamed", source, on_disk=on_disk)


def compile_visit(source: str, *, on_disk: bool) -> Any:
    """Return the compiled second visit, called as the ways through the first one are."""

    def entry(frame: Integers) -> None:
        callers_mode = set_float_mode(_IEEE)
        problem, counters, findings = problem_at(frame), counters_of(frame), findings_of(frame)
        desk, group, seat = seat_at(frame)
        keys = moved(buffers_of(frame), seat * key_floats(problem))
        chunks = chunk_count(problem, findings)
        count = problem.batch * problem.num_kv_heads * chunks
        note_arrival(counters, count)
        packed = -1
        taken = take_entry(counters)
        while taken < count:
            head, number = divmod(taken, chunks)
            batch, kv_head = divmod(head, problem.num_kv_heads)
            if head != packed:
                pack_keys(problem, desk, batch, kv_head, keys)
                packed = head
            # Under a causal mask the last rows take longest.
            visit_chunk(problem, desk, findings, batch, kv_head, group, chunks - 1 - number, keys)
            tick_off(moved(counters, FINISHED))
            taken = take_entry(counters)
        wait_for(moved(counters, FINISHED), count)
        set_float_mode(callers_mode)

    return _compiled(entry, "visit", source, on_disk=on_disk)


def compile_backward(source: str, *, on_disk: bool) -> Any:
    """Return the compiled backward pass, called as the ways through the first one are."""

    def entry(frame: Integers) -> None:
        callers_mode = set_float_mode(_IEEE)
        problem, counters, gradients, ring = (
            problem_at(frame), counters_of(frame), gradients_of(frame), ring_of(frame),
        )  # fmt: skip
        desk, group, seat = seat_at(frame)
        heads, stretches = head_count(problem), stretch_count(problem)
        blocks, rows = block_count(problem), group_rows(problem)
        size = packed_shared_floats(rows, problem.head_dim)
        buffers = buffers_of(frame)
        floats = packed_draft_floats(problem.head_dim, problem.value_head_dim)
        draft = draft_at(
            moved(buffers, ring * size + seat * floats), problem.head_dim, problem.value_head_dim
        )
        done, done_stretches = moved(counters, PER_HEAD), moved(gradients.turns, heads * blocks)
        count = heads * stretches
        note_arrival(counters, count)
        taken = take_entry(counters)
        while taken < count:
            head, stretch = divmod(taken, stretches)
            batch, kv_head = divmod(head, problem.num_kv_heads)
            if head >= ring:
                wait_for(moved(done, head - ring), stretches)
            if gradients.shares_bias and head > 0:
                wait_for(moved(done_stretches, taken - stretches), 1)
            working_heads(problem, batch, kv_head, group)
            turns = moved(gradients.turns, head * blocks)
            shared = shared_at(moved(buffers, head % ring * size), turns, rows, problem.head_dim)
            differentiate_stretch(problem, desk, draft, gradients, batch, kv_head, group, stretch, shared)
            tick_off(moved(done_stretches, taken))
            tick_off(moved(done, head))
            tick_off(moved(counters, FINISHED))
            taken = take_entry(counters)
        wait_for(moved(counters, FINISHED), count)
        set_float_mode(callers_mode)

    return _compiled(entry, "backward", source, on_disk=on_disk)


def compile_vector_code(source: str, group: str, *, on_disk: bool) -> Any:
    """Return a function that writes the addresses of a group's vector functions, in their order."""
    number = GROUPS.index(group)

    def addresses(table: Any) -> None:
        write_addresses(pointer_to(table), number)

    name_on_disk(addresses, f"vector_code_{number}", source)
    kind = types.void(types.Array(types.int64, 1, "A"))
    options = {"nogil": True, "cache": on_disk, "error_model": "numpy", "no_cfunc_wrapper": True}
    return njit(kind, **options)(addresses)


def _compiled(function: Any, name: str, source: str, *, on_disk: bool) -> Any:
    name_on_disk(function, name, source)
    return cfunc(types.void(IntegerPointer), cache=on_disk, error_model="numpy")(function)


def name_on_disk(function: Any, name: str, source: str) -> None:
    """Name a function after all that it is made from, before it is compiled.

    Numba keeps one index on disk for each qualified name and counts its files in it. Two processes that wrote
    different code under one name at the same moment would mix it up.
    """
    function.__qualname__ = f"{name}_{source[:16]}"
