"""Attention on NumPy arrays, computed by the compiled kernel."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numba.core import config
from numpy.typing import NDArray

from headwise.kernels import host
from headwise.kernels.compiled import entry_for
from headwise.kernels.desks import DESK_FLOATS, desk_integers
from headwise.kernels.entry import HAS_BIAS, HAS_GATES, HAS_LOGSUMEXP, HAS_MASK, HAS_SINKS
from headwise.kernels.geometry import BLOCK_ROWS, TILE
from headwise.kernels.packed import head_floats
from headwise.kernels.packing import BFLOAT16, FLOAT16, FLOAT32
from headwise.kernels.pool import POOL
from headwise.kernels.schedule import PER_HEAD
from headwise.kernels.streamed import CHUNK_TILES, share_floats

Element = Literal["float32", "bfloat16", "float16"]
_KINDS: dict[str, int] = {"float32": FLOAT32, "bfloat16": BFLOAT16, "float16": FLOAT16}

_HELP_AFTER = 4e6
"""Float operations, or bytes times four, below which waking a second thread costs more than it gains."""

_KEPT_BYTES = 64 * 2**20
"""Scratch memory that a calling thread keeps for its next call; what is larger is given back."""

_no_logsumexp = np.zeros((1, 1, 1), np.float32)
_no_mask = np.zeros((1, 1, 1, 1), np.uint8)
_no_bias = np.zeros((1, 1, 1, 1), np.float32)
_no_sinks = np.zeros(1, np.float32)
_no_gates = np.zeros((1, 1), np.float32)
_scratch = threading.local()


@dataclass(frozen=True)
class Arrays:
    """The arrays of one problem; 16-bit numbers are passed as int16.

    - query `[batch, num_heads, seq_len, head_dim]`, key `[batch, num_kv_heads, kv_len, head_dim]`,
      value `[batch, num_kv_heads, kv_len, value_head_dim]`, any strides
    - starts, stops: int64 `[batch or 1, seq_len]`, contiguous, the visible keys of each row
    - mask: uint8 `[batch, num_heads, seq_len, kv_len]`, 0 hides; bias: float32 of that shape; any strides
    - sinks: float32 `[num_heads]`; gates: float32 `[batch or 1, num_heads]`, contiguous
    """

    query: NDArray[Any]
    key: NDArray[Any]
    value: NDArray[Any]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    mask: NDArray[np.uint8] | None = None
    bias: NDArray[np.float32] | None = None
    sinks: NDArray[np.float32] | None = None
    gates: NDArray[np.float32] | None = None


def why_unavailable() -> str | None:
    """Return why this processor cannot run the kernel; None if it can."""
    if config.DISABLE_JIT:
        return "Numba is told not to compile (NUMBA_DISABLE_JIT)"
    if host.INSTRUCTION_SET is None:
        return "the processor has none of AVX-512, AVX2 with FMA, or NEON"
    return None


def attend(
    arrays: Arrays,
    output: NDArray[Any],
    logsumexp: NDArray[np.float32] | None,
    *,
    element: Element,
    scale: float,
    softcap: float | None,
    num_threads: int,
) -> None:
    """Write the output, `[batch, num_heads, seq_len, value_head_dim]`, and if asked the logsumexp.

    Nothing is checked here: shapes and dtypes must fit, head_dim and value_head_dim be at most
    `geometry.LARGEST_HEAD_DIM`, and neither output nor logsumexp, which is contiguous, overlap an input.
    """
    batch, num_heads, seq_len, head_dim = arrays.query.shape
    _, num_kv_heads, kv_len, value_head_dim = arrays.value.shape
    heads, group_size = batch * num_kv_heads, num_heads // num_kv_heads
    if 0 in (heads, seq_len):
        return
    rows = group_size * seq_len
    entries, ring, buffer_floats = _list_of_work(heads, rows, kv_len, head_dim, value_head_dim, num_threads)
    cost = 2.0 * heads * kv_len * (head_dim + value_head_dim) * max(rows, 8)
    threads = min(num_threads, entries) if cost > _HELP_AFTER else 1
    memory = _memory(threads * DESK_FLOATS + buffer_floats)
    desks, buffers = memory[: threads * DESK_FLOATS], memory[threads * DESK_FLOATS :]
    counters = np.zeros(PER_HEAD + 2 * heads, np.int64)
    shared = (counters, desks, np.empty(threads * desk_integers(group_size), np.int64), buffers)
    given, present = _given(arrays, output, logsumexp)
    numbers = (scale, 0.0 if softcap is None else softcap, _KINDS[element], present)
    run = entry_for(is_wide=element == "float32", is_streamed=rows <= BLOCK_ROWS)
    entry = partial(run, given, numbers, shared, ring)
    with POOL.helping(partial(entry, False), threads - 1):
        entry(True)
    _keep(memory)


def _list_of_work(
    heads: int, rows: int, kv_len: int, head_dim: int, value_head_dim: int, num_threads: int
) -> tuple[int, int, int]:
    """Return how many entries the list of work has, as `schedule` makes it, and what they are done in.

    That is how many KV heads are packed at a time, and the float32 numbers of the buffers.
    """
    tiles = -(-kv_len // TILE)
    if rows <= BLOCK_ROWS:
        return heads * max(1, -(-tiles // CHUNK_TILES)), 1, heads * tiles * share_floats(rows, value_head_dim)
    ring = min(heads, num_threads)
    entries = heads * (tiles + -(-rows // BLOCK_ROWS))
    return entries, ring, ring * head_floats(kv_len, head_dim, value_head_dim)


def _given(
    arrays: Arrays, output: NDArray[Any], logsumexp: NDArray[np.float32] | None
) -> tuple[tuple[NDArray[Any], ...], int]:
    """Return the arrays as an entry takes them, and which of those that may be absent are there."""
    mask, bias, sinks, gates = arrays.mask, arrays.bias, arrays.sinks, arrays.gates
    given = (
        arrays.query, arrays.key, arrays.value, output, _no_logsumexp if logsumexp is None else logsumexp,
        arrays.starts, arrays.stops, _no_mask if mask is None else mask, _no_bias if bias is None else bias,
        _no_sinks if sinks is None else sinks, _no_gates if gates is None else gates,
    )  # fmt: skip
    present = (
        HAS_LOGSUMEXP * (logsumexp is not None)
        | HAS_MASK * (mask is not None)
        | HAS_BIAS * (bias is not None)
        | HAS_SINKS * (sinks is not None)
        | HAS_GATES * (gates is not None)
    )
    return given, present


def _memory(floats: int) -> NDArray[np.float32]:
    """Return scratch memory, what the calling thread kept if it is large enough.

    It is taken out while in use: a call that is interrupted leaves helpers working in it.
    """
    kept: NDArray[np.float32] | None = getattr(_scratch, "floats", None)
    _scratch.floats = None
    return np.empty(floats, np.float32) if kept is None or kept.size < floats else kept


def _keep(memory: NDArray[np.float32]) -> None:
    if memory.nbytes <= _KEPT_BYTES:
        _scratch.floats = memory
