"""The OpenMP team of the process, lent to the kernel by whoever knows of one."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from time import monotonic
from typing import Any, TypeAlias

from headwise.kernels.frame import late_threads

Parallel: TypeAlias = Callable[[Any, Any, int, int], None]
"""OpenMP's way to run a function of one pointer on several threads: it comes back when all have returned."""

_PAUSE_SECONDS = 0.1
"""Ten to twenty times what a thread is left out for, so that trying again costs little."""

_LONG_SECONDS = 0.001
"""A thread that is being woken comes sooner. What it is waited for beyond that, it was left out for."""

_PARALLEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)


class Team:
    """Threads that run something else between our calls, and that look for more for a while afterwards.

    Other operations of a model leave them awake, one on every core. Threads of our own would have to be woken
    and to push them off the cores: the operating system lets them wait for a few milliseconds, which is as
    long as a call takes.

    Where others use the cores too, a thread of the team may not be running: its call waits for it even when
    everything is done, for as long as the operating system leaves it out. So after a thread came too late to
    help in a call that took long, the team is left alone for a moment, and workers of our own, for whom
    nobody waits, take its place.

    A forked child has no team, and the library would wait there for ever for threads that are gone.
    """

    def __init__(self) -> None:
        self._parallel: Parallel | None = None
        self._rested = 0.0
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._parallel = None

    @property
    def is_ready(self) -> bool:
        """Whether there is a team to run on, and nothing tells that one would have to wait for it."""
        return self._parallel is not None and monotonic() >= self._rested

    def join(self, address: int) -> None:
        """Run on the team behind the function `GOMP_parallel` at this address from now on."""
        self._parallel = _PARALLEL(address)

    def run(self, entry: Any, frame: Any, threads: int) -> None:
        """Call an entry with a frame on so many threads, the caller among them; fewer if there are fewer."""
        begun = monotonic()
        if self._parallel is not None:
            self._parallel(ctypes.cast(entry, ctypes.c_void_p), frame, threads, 0)
        ended = monotonic()
        if ended - begun > _LONG_SECONDS and late_threads(frame):
            self._rested = ended + _PAUSE_SECONDS


TEAM = Team()
