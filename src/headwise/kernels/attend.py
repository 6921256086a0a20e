"""Attention on memory, computed by the compiled kernel."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from numba.core import config

from headwise.kernels import calls, host
from headwise.kernels.compiled import entry_for
from headwise.kernels.desks import desk_floats
from headwise.kernels.frame import Operands, Sizes, frame_of
from headwise.kernels.geometry import DESK_ROWS, TILE
from headwise.kernels.host import BLOCK_ROWS
from headwise.kernels.packed import head_floats
from headwise.kernels.schedule import share_places
from headwise.kernels.streamed import CHUNK_TILES, share_floats
from headwise.kernels.ways import PACKED, STREAMED

__all__ = ["Operands", "Sizes", "attend", "why_unavailable"]


def why_unavailable() -> str | None:
    """Return why this processor cannot run the kernel; None if it can."""
    if config.DISABLE_JIT:
        return "Numba is told not to compile (NUMBA_DISABLE_JIT)"
    if host.INSTRUCTION_SET is None:
        return "the processor has none of AVX-512, AVX2 with FMA, or NEON"
    return None


def attend(sizes: Sizes, operands: Operands, *, num_threads: int) -> None:
    """Write output and logsumexp of a problem.

    Nothing is checked here: addresses and strides must fit the sizes, head_dim and value_head_dim be at most
    `geometry.LARGEST_HEAD_DIM`, and neither output nor logsumexp overlap an input.
    """
    work = _work(sizes, num_threads)
    if work is None:
        return
    memory, address = calls.take_memory(work.floats)
    frame = frame_of(
        sizes,
        operands,
        ring=work.ring,
        desks=address,
        desk_floats=work.desk_floats,
        buffers=address + work.buffers,
    )
    calls.run(entry_for(work.way), frame, work.threads, (operands.owners, memory))
    calls.keep_memory(memory, address)


class _Work(NamedTuple):
    """How a problem is worked at.

    - way: that of few rows or of many
    - threads: how many at most; ring: how many KV heads are packed, or streamed, at a time
    - floats: the float32 numbers of the memory it is done in: desks of `desk_floats` each, and from byte
      `buffers` on what threads leave for each other
    """

    way: str
    threads: int
    ring: int
    desk_floats: int
    buffers: int
    floats: int


@lru_cache(maxsize=64)
def _work(sizes: Sizes, num_threads: int) -> _Work | None:
    """Return how to work at problems of these sizes, None where there is nothing to do."""
    heads, group_size = sizes.batch * sizes.num_kv_heads, sizes.num_heads // max(1, sizes.num_kv_heads)
    rows = group_size * sizes.seq_len
    if not heads or not rows:
        return None
    tiles, widths = -(-sizes.kv_len // TILE), (sizes.head_dim, sizes.value_head_dim)
    way, ring = STREAMED if _streams(sizes, rows) else PACKED, min(heads, num_threads)
    if way == STREAMED:
        entries = heads * max(1, -(-tiles // CHUNK_TILES))
        shares = tiles * share_floats(rows, sizes.value_head_dim)
        buffer_floats = share_places(heads, ring, shares) * shares
    else:
        entries = heads * (tiles + -(-rows // BLOCK_ROWS))
        buffer_floats = ring * head_floats(sizes.kv_len, *widths)
    cost = 2.0 * heads * sizes.kv_len * sum(widths) * max(rows, 8)
    threads = calls.threads_for(cost, entries, num_threads)
    desk = desk_floats(group_size)
    return _Work(way, threads, ring, desk, 4 * threads * desk, threads * desk + buffer_floats)


def _streams(sizes: Sizes, rows: int) -> bool:
    """Return whether keys and values are read as they lie by so many rows, not packed before.

    Packing costs as much as some rows' products and drives a long head out of the cache; what is packed is
    faster to read for every row. Far from the border either way takes up to half as long again as the other.
    """
    numbers = sizes.kv_len * (sizes.head_dim + sizes.value_head_dim)
    return rows <= DESK_ROWS and rows * rows * host.GEOMETRY.worth_streaming <= numbers
