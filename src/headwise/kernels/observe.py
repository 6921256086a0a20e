"""The second visit to a problem that was attended to: what each row's weights were."""

from __future__ import annotations

import ctypes

from headwise.kernels import calls
from headwise.kernels.compiled import entry_for
from headwise.kernels.desks import desk_floats
from headwise.kernels.findings import NUMBERS, Findings, slots_of
from headwise.kernels.frame import Operands, Sizes, frame_of
from headwise.kernels.geometry import TILE
from headwise.kernels.ways import VISIT

__all__ = ["NUMBERS", "Findings", "chunk_rows", "visit"]

_CHUNKS = 16
"""Into how many chunks the rows of a KV head are cut: enough for threads to share, few enough to add up."""


def chunk_rows(seq_len: int) -> int:
    """Return how many queries a chunk has."""
    return max(1, -(-seq_len // _CHUNKS))


def visit(sizes: Sizes, operands: Operands, findings: Findings, *, num_threads: int) -> None:
    """Fill the findings of a problem; its maxima and sums are there from `attend`.

    The operands are those of `attend`, but the value and the output are not looked at, logsumexp is 0, and
    the gates say which heads are reported: those whose gate is not 0.
    """
    heads, rows = sizes.batch * sizes.num_kv_heads, sizes.num_heads * sizes.seq_len
    if not heads or not rows:
        return
    chunks = -(-sizes.seq_len // findings.chunk_rows)
    cost = 2.0 * sizes.batch * rows * sizes.kv_len * sizes.head_dim
    threads = calls.threads_for(cost, heads * chunks, num_threads)
    desk = desk_floats(sizes.num_heads // sizes.num_kv_heads)
    keys = -(-sizes.kv_len // TILE) * TILE * sizes.head_dim
    memory, address = calls.take_memory(threads * (desk + keys))
    slots = slots_of(findings)
    frame = frame_of(
        sizes,
        operands,
        ring=1,
        desks=address,
        desk_floats=desk,
        buffers=address + 4 * threads * desk,
        extra=ctypes.addressof(slots),
    )
    calls.run(entry_for(VISIT), frame, threads, (operands.owners, memory, slots))
    calls.keep_memory(memory, address)
