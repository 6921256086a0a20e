"""The worker threads: kept between calls, shared by all callers, made anew after a fork."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from time import monotonic, sleep

_END_SECONDS = 1.0
"""How long the end of Python waits for workers that are at a task."""


class _Offer:
    """A task that waits for a worker, until its caller takes it back."""

    __slots__ = ("task",)

    def __init__(self, task: Callable[[], None]) -> None:
        self.task: Callable[[], None] | None = task


class WorkerPool:
    """Threads that run a function beside the caller.

    The caller always works too, and a helper that comes late finds nothing left to do, so a call never waits
    for a worker that is busy with another caller's problem.

    The end of Python does wait, a little. A worker that came late may hold the last reference to a tensor,
    and torch aborts a process whose thread is giving one back while Python ends.
    """

    def __init__(self) -> None:
        self._forget_threads()
        # A forked child has the queue but none of the threads, and perhaps a lock that nobody will open.
        os.register_at_fork(after_in_child=self._forget_threads)
        atexit.register(self._end)

    def _forget_threads(self) -> None:
        self._lock = threading.Lock()
        self._offers: SimpleQueue[_Offer] = SimpleQueue()
        self._threads = 0
        self._at_work: set[object] = set()
        self._has_ended = False

    def _end(self) -> None:
        """Take no more tasks, and wait for those that were taken."""
        self._has_ended = True
        latest = monotonic() + _END_SECONDS
        while self._at_work and monotonic() < latest:
            sleep(0.001)

    @contextmanager
    def helping(self, task: Callable[[], None], helpers: int) -> Iterator[None]:
        """Let `helpers` workers run `task` beside the block; one that is not free by its end never will.

        So what the task holds on to, a caller's tensors, is not kept by the pool behind the caller's back.
        """
        offer = _Offer(task)
        if self._threads < helpers and not self._has_ended:
            self._start(helpers)
        for _ in range(min(helpers, self._threads)):
            self._offers.put(offer)
        try:
            yield
        finally:
            offer.task = None

    def _start(self, count: int) -> None:
        """Start what is missing of `count` workers; fewer where the system, or the end of Python, forbids."""
        with self._lock, suppress(RuntimeError):
            while self._threads < count:
                threading.Thread(
                    target=self._work, args=(self._offers,), name="headwise worker", daemon=True
                ).start()
                self._threads += 1

    def _work(self, offers: SimpleQueue[_Offer]) -> None:
        own, at_work = object(), self._at_work
        while True:
            offer = offers.get()
            at_work.add(own)
            if not self._has_ended:
                _help(offer)
            at_work.discard(own)


def _help(offer: _Offer) -> None:
    """Run a task. An error in it costs no worker its life: the caller, who does the same, meets it too."""
    task = offer.task
    if task is not None:
        with suppress(Exception):
            task()


POOL = WorkerPool()
