"""`check` of a user's file, in a process of its own with limits on time and memory; data comes back.

What runs there is the user's own code with the user's own rights: the limits are against accidents, such as a
loop without end or a crash, and no sandbox. `warden.py` tells how the processes hang together.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwise import errors
from headwise.errors import ArgumentError, HeadwiseError
from headwise.verbs.check.contained import Heard, run_contained
from headwise.verbs.check.result import CheckResult
from headwise.verbs.check.wire import read_back
from headwise.verbs.terminal import binary_size

DEFAULT_SECONDS = 120.0
DEFAULT_MEMORY_BYTES = 8 << 30
_WORKER = "headwise.verbs.check.worker"
# As `faulthandler` writes it, the frame that ran last first.
_FRAME = re.compile(r'File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)')


def check_file(
    path: Path,
    name: str,
    *,
    options: Mapping[str, Any],
    seconds: float = DEFAULT_SECONDS,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> CheckResult:
    """Return what `check` finds of a name in a Python file, which runs in a process of its own.

    Whatever the file prints is left out.

    Args:
        path: the file.
        name: of a function, a class or a module in it.
        options: of `headwise.check`, as JSON can carry them: `rope` as what `headwise.Rope` is given.
        seconds: how long the file may run, the checking included.
        memory_bytes: how much memory its processes may hold together.

    Raises:
        ArgumentError: there is no such file or name, or running it ended without a result.
        HeadwiseError: whatever `check` raises.

    """
    _refuse_absent(path)
    request = {"path": str(path), "name": name, "options": dict(options)}
    heard = run_contained(_WORKER, request, seconds=seconds, memory_bytes=memory_bytes)
    if (found := heard.told("result")) is not None:
        return _result(path, found)
    if (refused := heard.told("refused")) is not None:
        raise _refusal(path, refused)
    if (failed := heard.told("failed")) is not None:
        raise _failure(str(failed))
    raise ArgumentError(f"{path} {_why_none(path, heard, seconds, memory_bytes)}")


def _refuse_absent(path: Path) -> None:
    try:
        what = None if path.is_file() else "is no file" if path.exists() else "does not exist"
    except OSError as error:
        what = f"cannot be looked at: {error.strerror}"
    if what is not None:
        raise ArgumentError(f"{path} {what}; name a Python file and what to check in it, as in FILE.py:NAME")


def _result(path: Path, document: Any) -> CheckResult:
    try:
        return read_back(CheckResult, document)
    except ValueError as error:
        raise ArgumentError(
            f"{path} wrote something else where the result of the check should stand ({error}); does it "
            "write to file descriptors that it has not opened?"
        ) from error


def _refusal(path: Path, told: Any) -> HeadwiseError:
    kinds = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}
    match told:
        case {"kind": str(kind), "message": str(message)} if kind in kinds:
            refused: HeadwiseError = kinds[kind](message)
            return refused
    return ArgumentError(f"{path} wrote something else where the reason of a refusal should stand")


def _failure(told: str) -> RuntimeError:
    """Return a fault of headwise with the traceback of the other process as a note, which --debug shows."""
    error = RuntimeError(f"in the checking process, {told.strip().splitlines()[-1]}")
    error.add_note(told)
    return error


def _why_none(path: Path, heard: Heard, seconds: float, memory_bytes: int) -> str:
    """Say why the worker has ended without an answer, as what follows the file's name."""
    where = _last_line(path, heard)
    stopped = heard.told("stopped")
    if not heard.told("started"):
        return f"could not be run: the process for it did not start{_last_printed(heard)}; try again"
    if stopped == "time":
        return (
            f"was stopped after {seconds:g} seconds{where}; it may never end, or give it longer with "
            "--time-limit SECONDS"
        )
    if stopped == "memory":
        return f"was stopped as it took more than {binary_size(memory_bytes)} of memory{where}; take less"
    ended = heard.told("ended")
    if stopped is None and isinstance(ended, int) and ended < 0:
        return f"ended its process by {_signal(ended)}{where}; the check needs a process that lives on"
    if stopped is None and isinstance(ended, int):
        return (
            f"ended its process with exit code {ended} before there was a result{_last_printed(heard)}; does "
            "it call os._exit, or go on in a process of its own?"
        )
    return f"ended the process that watches over it{_last_printed(heard)}; does it send signals to others?"


def _signal(code: int) -> str:
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    if name == "SIGKILL":
        return f"{name}, as when memory runs out"
    return f"{name} (a segmentation fault)" if name == "SIGSEGV" else name


def _last_line(path: Path, heard: Heard) -> str:
    """Return where in the file the process was when a signal ended it, as far as Python could write it."""
    for trace in heard.traces:
        frame = _FRAME.search(trace)
        if frame and Path(frame["file"]) == path.absolute():
            return f" in line {frame['line']} ({frame['function']})"
    return ""


def _last_printed(heard: Heard) -> str:
    lines = heard.printed.decode("utf-8", errors="replace").strip().splitlines()
    return f" (the last it printed: {lines[-1].strip()[:200]})" if lines else ""
