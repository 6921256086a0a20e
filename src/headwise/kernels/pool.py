"""The worker threads: kept between calls, shared by all callers, made anew after a fork."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any


class WorkerPool:
    """Threads that run a function beside the caller.

    The caller always works too, and a helper that comes late finds nothing left to do, so a call never waits
    for a worker that is busy with another caller's problem.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forget_threads()
        # A forked child has the queue but none of the threads, and perhaps a lock that nobody will open.
        os.register_at_fork(after_in_child=self._forget_threads)

    def _forget_threads(self) -> None:
        self._lock = threading.Lock()
        self._tasks: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._threads = 0

    def help_with(self, task: Callable[[], None], helpers: int) -> None:
        """Let `helpers` workers run `task` as soon as they are free."""
        with self._lock:
            while self._threads < helpers:
                threading.Thread(
                    target=_work, args=(self._tasks,), name="headwise worker", daemon=True
                ).start()
                self._threads += 1
        for _ in range(helpers):
            self._tasks.put(task)


def _work(tasks: SimpleQueue[Callable[[], Any]]) -> None:
    while True:
        tasks.get()()


POOL = WorkerPool()
