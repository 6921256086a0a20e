"""Watches over the process that runs a user's file; run as a script: `python -P warden.py`.

Three processes: headwise, this one, and the worker that it forks, in which the file runs. This one loads
nothing but the standard library, answers to headwise alone, and ends only when the worker and whatever the
worker has started are gone, also what has put itself into a session of its own.

Standard input carries one line of JSON, the request, and stays open: a second line, or its end, means stop.
Standard output carries lines of JSON: the worker's, and, last, how it ended. The worker's own standard output
and error both go to standard error.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import resource
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

# From sys/prctl.h.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LOOK_EVERY_MS = 50
# What a stopped worker may take to write where it was.
_LAST_WORDS_SECONDS = 2.0
# Longer than any answer takes to be read.
_ENDING_SECONDS = 10.0


def main() -> None:
    """Fork the worker, wait for it, and leave nothing of it behind."""
    request = json.loads(sys.stdin.buffer.readline())
    # Orphans of the worker become children of this process, and can be found.
    _control_process(_PR_SET_CHILD_SUBREAPER, 1)
    own = os.getpid()
    worker = os.fork()
    if worker == 0:
        _become_worker(request, own)
    _tell({"group": worker})
    ended = _wait(worker, request["memory_bytes"])
    _end_all()
    _tell(ended)


def _become_worker(request: dict[str, Any], warden: int) -> None:
    """Turn this process into the worker and run the module that the request names."""
    os.setsid()
    _control_process(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != warden:
        os._exit(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        # Where memory runs out all the same, the system is to end this process and none of the user's others.
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    answers = os.dup(1)
    os.dup2(2, 1)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    importlib.import_module(request["module"]).work(request, answers)
    os._exit(0)


def _wait(worker: int, memory_bytes: int) -> dict[str, Any]:
    """Wait until the worker has ended or is stopped, and return how."""
    poll = select.poll()
    poll.register(sys.stdin.fileno(), select.POLLIN | select.POLLHUP)
    while True:
        status = _reap(worker)
        if status is not None:
            return {"ended": os.waitstatus_to_exitcode(status)}
        if poll.poll(_LOOK_EVERY_MS):
            _stop(worker)
            return {"stopped": "time"}
        used = _resident_bytes(_descendants(os.getpid()))
        if used > memory_bytes:
            _stop(worker)
            return {"stopped": "memory"}


def _reap(worker: int) -> int | None:
    """Return the status of the worker if it has ended; its orphans are taken in on the way."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == worker:
            return status
        if pid == 0:
            return None


def _stop(worker: int) -> None:
    """End the worker by the signal at which Python writes where it was."""
    os.kill(worker, signal.SIGABRT)
    patience = time.monotonic() + _LAST_WORDS_SECONDS
    while time.monotonic() < patience and _reap(worker) is None:
        time.sleep(0.01)


def _end_all() -> None:
    """Kill every process below this one, those that appear meanwhile included."""
    patience = time.monotonic() + _ENDING_SECONDS
    while time.monotonic() < patience:
        for pid in _descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.005)
        except ChildProcessError:
            return


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children = _children(waiting.pop())
        found += children
        waiting += children
    return found


def _children(pid: int) -> list[int]:
    children: list[int] = []
    # A process may end while it is looked at.
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                children += map(int, (thread / "children").read_text(encoding="ascii").split())
    return children


def _resident_bytes(pids: list[int]) -> int:
    pages = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            pages += int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def _control_process(what: int, value: int) -> None:
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(what, value)


def _tell(said: dict[str, Any]) -> None:
    # The worker may have been ended in the middle of a line. Nobody may be there to read any more.
    with contextlib.suppress(OSError):
        os.write(1, b"\n" + json.dumps(said).encode() + b"\n")


if __name__ == "__main__":
    main()
