"""The gradients of a problem that was attended to."""

from __future__ import annotations

import ctypes

from headwise.kernels import calls
from headwise.kernels.compiled import entry_for
from headwise.kernels.desks import desk_floats
from headwise.kernels.drafts import draft_floats, shared_floats
from headwise.kernels.frame import Operands, Sizes, frame_of
from headwise.kernels.geometry import STRETCH
from headwise.kernels.gradients import Gradients, slots_of
from headwise.kernels.host import BLOCK_ROWS
from headwise.kernels.ways import BACKWARD

__all__ = ["Gradients", "differentiate", "turns_of"]


def turns_of(sizes: Sizes) -> int:
    """Return how many integers `Gradients.turns` has."""
    blocks, stretches = _blocks(sizes), _stretches(sizes)
    return sizes.batch * sizes.num_kv_heads * (blocks + stretches)


def differentiate(sizes: Sizes, operands: Operands, gradients: Gradients, *, num_threads: int) -> None:
    """Write the gradients of a problem; its maxima, sums and shifts are there from `attend`.

    The operands are those of `attend`, but without logsumexp and gates; the output is not looked at.
    """
    heads, rows = sizes.batch * sizes.num_kv_heads, _rows(sizes)
    if not heads:
        return
    stretches = _stretches(sizes)
    cost = 5.0 * heads * rows * sizes.kv_len * (sizes.head_dim + sizes.value_head_dim)
    threads = calls.threads_for(cost, heads * stretches, num_threads)
    ring = min(heads, threads)
    desk, draft = desk_floats(sizes.num_heads // sizes.num_kv_heads), draft_floats(*_widths(sizes))
    shared = ring * shared_floats(rows, sizes.head_dim)
    memory, address = calls.take_memory(threads * (desk + draft) + shared)
    slots = slots_of(gradients)
    frame = frame_of(
        sizes,
        operands,
        ring=ring,
        desks=address,
        desk_floats=desk,
        buffers=address + 4 * threads * desk,
        extra=ctypes.addressof(slots),
    )
    calls.run(entry_for(BACKWARD), frame, threads, (operands.owners, memory, slots))
    calls.keep_memory(memory, address)


def _rows(sizes: Sizes) -> int:
    return sizes.num_heads // sizes.num_kv_heads * sizes.seq_len


def _blocks(sizes: Sizes) -> int:
    return -(-_rows(sizes) // BLOCK_ROWS)


def _stretches(sizes: Sizes) -> int:
    return max(1, -(-sizes.kv_len // STRETCH))


def _widths(sizes: Sizes) -> tuple[int, int]:
    return sizes.head_dim, sizes.value_head_dim
