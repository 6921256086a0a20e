"""Attention on memory, computed by the compiled kernel."""

from __future__ import annotations

import threading
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numba.core import config
from numpy.typing import NDArray

from headwise.kernels import host
from headwise.kernels.compiled import Entry, entry_for
from headwise.kernels.desks import desk_floats
from headwise.kernels.frame import Operands, Sizes, frame_of
from headwise.kernels.geometry import BLOCK_ROWS, TILE
from headwise.kernels.packed import head_floats
from headwise.kernels.pool import POOL
from headwise.kernels.streamed import CHUNK_TILES, share_floats
from headwise.kernels.team import TEAM

__all__ = ["Operands", "Sizes", "attend", "why_unavailable"]

_HELP_AFTER = 4e6
"""Float operations, or bytes times four, below which waking a second thread costs more than it gains."""

_KEPT_BYTES = 64 * 2**20
"""Scratch memory that a calling thread keeps for its next call; what is larger is given back."""

_scratch = threading.local()


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
    memory, address = _memory(work.floats)
    frame = frame_of(sizes, operands, work.ring, address, work.desk_floats, address + work.buffers)
    run = entry_for(is_streamed=work.is_streamed)
    if work.threads == 1:
        run(frame)
    elif TEAM.is_ready:
        TEAM.run(run, frame, work.threads)
    else:
        # A call that is interrupted leaves its memory to its helpers.
        held = operands.owners, memory
        with POOL.helping(partial(_help, run, frame, held), work.threads - 1):
            run(frame)
    if memory.nbytes <= _KEPT_BYTES:
        _scratch.kept = memory, address


def _help(run: Entry, frame: Any, _held: object) -> None:
    run(frame)


class _Work(NamedTuple):
    """How a problem is worked at.

    - threads: how many at most; ring: how many KV heads are packed at a time
    - floats: the float32 numbers of the memory it is done in: desks of `desk_floats` each, and from byte
      `buffers` on what threads leave for each other
    """

    is_streamed: bool
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
    is_streamed = rows <= BLOCK_ROWS
    if is_streamed:
        entries, ring = heads * max(1, -(-tiles // CHUNK_TILES)), 1
        buffer_floats = heads * tiles * share_floats(rows, sizes.value_head_dim)
    else:
        entries, ring = heads * (tiles + -(-rows // BLOCK_ROWS)), min(heads, num_threads)
        buffer_floats = ring * head_floats(sizes.kv_len, *widths)
    cost = 2.0 * heads * sizes.kv_len * sum(widths) * max(rows, 8)
    # A team that is asked for fewer threads sends the others away, and torch would have to call them back.
    threads = num_threads if entries > 1 and cost > _HELP_AFTER else 1
    desk = desk_floats(group_size)
    return _Work(is_streamed, threads, ring, desk, 4 * threads * desk, threads * desk + buffer_floats)


def _memory(floats: int) -> tuple[NDArray[np.float32], int]:
    """Return scratch memory and its address: what the calling thread kept, if it is large enough.

    It is taken out while in use: a call that fails half-way may leave workers in it.
    """
    kept: tuple[NDArray[np.float32], int] | None = getattr(_scratch, "kept", None)
    _scratch.kept = None
    if kept is None or kept[0].size < floats:
        memory = np.empty(floats, np.float32)
        return memory, memory.ctypes.data
    return kept
