"""What every call needs: memory to work in, and threads to work at its frame."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.kernels.compiled import Entry
from headwise.kernels.geometry import LINE
from headwise.kernels.pool import POOL
from headwise.kernels.team import TEAM

_HELP_AFTER = 4e6
"""Float operations, or bytes times four, below which waking a second thread costs more than it gains."""

_KEPT_BYTES = 64 * 2**20
"""Scratch memory that a calling thread keeps for its next call; what is larger is given back."""

_scratch = threading.local()


def threads_for(cost: float, entries: int, num_threads: int) -> int:
    """Return how many threads work at a problem of so many float operations and entries of work."""
    # A team that is asked for fewer threads sends the others away, and torch would have to call them back.
    return num_threads if entries > 1 and cost > _HELP_AFTER else 1


def take_memory(floats: int) -> tuple[NDArray[np.float32], int]:
    """Return scratch memory and its address: what the calling thread kept, if it is large enough.

    It begins at a cache line, so that no vector lies in two. It is taken out while in use: a call that fails
    half-way may leave workers in it.
    """
    kept: tuple[NDArray[np.float32], int] | None = getattr(_scratch, "kept", None)
    _scratch.kept = None
    if kept is None or kept[0].size < floats + LINE:
        memory = np.empty(floats + LINE, np.float32)
        begin: int = memory.ctypes.data
        return memory, begin + -begin % (4 * LINE)
    return kept


def keep_memory(memory: NDArray[np.float32], address: int) -> None:
    """Let the calling thread keep scratch memory for its next call."""
    if memory.nbytes <= _KEPT_BYTES:
        _scratch.kept = memory, address


def run(entry: Entry, frame: Any, threads: int, held: object) -> None:
    """Work at a frame with so many threads; `held` is all memory that it has addresses of."""
    if threads == 1:
        entry(frame)
    elif TEAM.is_ready:
        TEAM.run(entry, frame, threads)
    else:
        # A call that is interrupted leaves its memory to its helpers.
        with POOL.helping(partial(_help, entry, frame, held), threads - 1):
            entry(frame)


def _help(entry: Entry, frame: Any, _held: object) -> None:
    entry(frame)
