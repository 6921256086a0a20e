"""One backend asked all its cases in processes of its own, so that one that crashes or hangs harms nobody."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from threading import Event
from typing import Any

from headwise.verbs.check_machine.backends.backend import Backend, Form
from headwise.verbs.check_machine.case import Case
from headwise.verbs.check_machine.result import Examined, Finding
from headwise.verbs.libraries import CannotRunError

# Far more than any case takes, a kernel's first compilation on a busy machine included.
PATIENCE_SECONDS = 180.0
# After so many crashes the rest is not asked: each costs a new process.
MOST_CRASHES = 3
_LOOK_UP_SECONDS = 0.2
# The parent's own search path: the child must find this headwise, however the parent found it.
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from headwise.verbs.check_machine.child import main; main()"
)


@dataclass(frozen=True)
class Unit:
    """One form of one case."""

    case: Case
    form: Form


class _EndedError(Exception):
    """A child ended, or was ended, before it had answered everything."""

    def __init__(self, begun: int | None, reason: str, *, hung: bool = False) -> None:
        super().__init__(reason)
        self.begun, self.reason, self.hung = begun, reason, hung


def units_of(backend: Backend, cases: Sequence[Case]) -> tuple[list[Unit], list[Finding]]:
    """Return all that is to be asked, and what the backend has no form of."""
    units: list[Unit] = []
    without: list[Finding] = []
    for case in cases:
        if backend.is_compiled and not case.compiled:
            continue
        try:
            units.extend([Unit(case, form) for form in backend.forms(case)])
        except CannotRunError as refusal:
            without.append(Finding(backend.name, case.group, case.name, "", "cannot", reason=str(refusal)))
    return units, without


def examine(
    backend: Backend,
    cases: Sequence[Case],
    *,
    tell: Callable[[Backend, Unit], None],
    stop: Event,
    patience: float = PATIENCE_SECONDS,
) -> Examined:
    """Return what a backend made of the cases; `tell` hears of each before it is asked.

    A crash is a wrong answer to the case, and a new process goes on behind it. A backend that does not answer
    in `patience` seconds is asked nothing more.
    """
    units, findings = units_of(backend, cases)
    crashes = 0
    while units:
        try:
            for finding in _answers(backend, units, tell=tell, stop=stop, patience=patience):
                findings.append(finding)
            break
        except CannotRunError as absence:
            return Examined(backend.name, backend.label, (), missing=str(absence))
        except _EndedError as end:
            if end.begun is None:
                return Examined(backend.name, backend.label, tuple(findings), missing=end.reason)
            findings.append(_of(backend, units[end.begun], end))
            units, crashes = units[end.begun + 1 :], crashes + 1
            if end.hung or crashes == MOST_CRASHES:
                why = "it did not answer before" if end.hung else f"it crashed {crashes} times before"
                findings += [_finding(backend, unit, "cannot", f"not asked: {why}") for unit in units]
                break
    return Examined(backend.name, backend.label, tuple(findings))


def _answers(
    backend: Backend,
    units: Sequence[Unit],
    *,
    tell: Callable[[Backend, Unit], None],
    stop: Event,
    patience: float,
) -> Iterator[Finding]:
    """Yield the findings of one child.

    Raises:
        CannotRunError: a library is missing.
        _EndedError: the child ended too early.

    """
    begun = None
    with _child(backend, units) as (process, pipe):
        for line in _lines(pipe, stop=stop, patience=patience):
            if line is None:
                raise _EndedError(begun, f"no answer within {patience:.0f} seconds", hung=True)
            message = json.loads(line)
            if "missing" in message:
                raise CannotRunError(message["missing"])
            if "begun" in message:
                begun = message["begun"]
                tell(backend, units[begun])
            else:
                yield _told(message["found"])
        if process.wait() or begun != len(units) - 1:
            raise _EndedError(begun, _how_it_ended(process.returncode))


@contextmanager
def _child(backend: Backend, units: Sequence[Unit]) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start a child; on leaving it is gone, whatever it was doing."""
    reading, writing = os.pipe()
    with tempfile.TemporaryFile("w+", encoding="utf-8") as request:
        units_told = [asdict(unit) for unit in units]
        json.dump({"home": backend.home, "pipe": writing, "units": units_told}, request)
        request.seek(0)
        process = subprocess.Popen(  # noqa: S603 - this very interpreter, with source that is ours
            [sys.executable, "-c", _START, json.dumps(sys.path)],
            stdin=request,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(writing,),
        )
    os.close(writing)
    try:
        yield process, reading
    finally:
        os.close(reading)
        process.kill()
        process.wait()


def _lines(pipe: int, *, stop: Event, patience: float) -> Iterator[bytes | None]:
    """Yield what comes, line by line, until the end; None where nothing comes for too long, or on `stop`."""
    waiting, since = b"", time.monotonic()
    while True:
        readable, _, _ = select.select([pipe], [], [], _LOOK_UP_SECONDS)
        if readable:
            read = os.read(pipe, 65536)
            if not read:
                return
            *whole, waiting = (waiting + read).split(b"\n")
            yield from whole
            since = time.monotonic()
        elif stop.is_set() or time.monotonic() - since > patience:
            yield None


def _of(backend: Backend, unit: Unit, end: _EndedError) -> Finding:
    return _finding(backend, unit, "cannot" if end.hung else "wrong", end.reason, line=unit.form.source)


def _finding(backend: Backend, unit: Unit, verdict: Any, reason: str, line: str | None = None) -> Finding:
    case = unit.case
    return Finding(backend.name, case.group, case.name, unit.form.name, verdict, reason=reason, line=line)


def _told(found: dict[str, Any]) -> Finding:
    """Return a finding as the child had it: JSON makes lists of shapes."""
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in found.items()
    }
    return Finding(**given)


def _how_it_ended(returncode: int) -> str:
    if returncode < 0:
        return f"the process crashed: {signal.Signals(-returncode).name}"
    return f"the process ended by itself, with exit status {returncode}"
