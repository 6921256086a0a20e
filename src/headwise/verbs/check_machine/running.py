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
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from threading import Event
from typing import Any

from headwise.verbs.check_machine.backends.backend import Backend, Form
from headwise.verbs.check_machine.case import Case
from headwise.verbs.check_machine.result import Examined, Finding, Verdict
from headwise.verbs.libraries import CannotRunError
from headwise.verbs.machine import usable_cpus

# Far more than any case takes where every process that wants a processor has one, a kernel's first
# compilation included. Where so many times as many are wanted, it is so many times as much.
PATIENCE_SECONDS = 90.0
_STARTING_SECONDS = 90.0
# After so many crashes the rest is not asked: each costs a new process.
MOST_CRASHES = 3
_LOOK_UP_SECONDS = 0.2
_ENDING_SECONDS = 10.0
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
    """A child ended, or was ended, before all was answered; why the rest is given up, where that is so."""

    def __init__(self, answered: int, reason: str, *, hung: bool = False, give_up: str | None = None) -> None:
        super().__init__(reason)
        self.answered, self.reason, self.hung, self.give_up = answered, reason, hung, give_up


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
    in `patience` seconds is asked nothing more; they are longer on a crowded machine.
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
            verdict: Verdict = "cannot" if end.hung else "wrong"
            findings.append(_unanswered(backend, units[end.answered], verdict, end.reason))
            units, crashes = units[end.answered + 1 :], crashes + 1
            why = end.give_up
            if why is None and crashes == MOST_CRASHES:
                why = f"it crashed {crashes} times before"
            if why is not None:
                findings += [_unanswered(backend, unit, "cannot", f"not asked: {why}") for unit in units]
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
    begun = answered = 0
    with _child(backend, units) as (process, pipe):
        for line in _lines(pipe, stop=stop, patience=patience):
            if line is None:
                late, before = f"no answer within {patience:g} seconds", "it did not answer before"
                raise _EndedError(answered, late, hung=True, give_up=before)
            message = json.loads(line)
            if "missing" in message:
                raise CannotRunError(message["missing"])
            if "begun" in message:
                begun += 1
                tell(backend, units[message["begun"]])
            else:
                answered += 1
                yield _told(message["found"])
        if answered < len(units):
            with suppress(subprocess.TimeoutExpired):
                process.wait(_ENDING_SECONDS)
            give_up = None if begun else "its process did not get so far as to be asked"
            raise _EndedError(answered, _how_it_ended(process.returncode), give_up=give_up)


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
    waiting, since, allowed = b"", time.monotonic(), max(patience, _STARTING_SECONDS)
    while not stop.is_set() and time.monotonic() - since <= allowed * _crowding():
        readable, _, _ = select.select([pipe], [], [], _LOOK_UP_SECONDS)
        if not readable:
            continue
        read = os.read(pipe, 65536)
        if not read:
            return
        *whole, waiting = (waiting + read).split(b"\n")
        yield from whole
        since, allowed = time.monotonic(), patience
    yield None


def _crowding() -> float:
    """Return how many processes want each processor; 1 where there is one for each."""
    return max(1.0, os.getloadavg()[0] / usable_cpus())


def _unanswered(backend: Backend, unit: Unit, verdict: Verdict, reason: str) -> Finding:
    case, line = unit.case, unit.form.source if verdict == "wrong" else None
    return Finding(backend.name, case.group, case.name, unit.form.name, verdict, reason=reason, line=line)


def _told(found: dict[str, Any]) -> Finding:
    """Return a finding as the child had it: JSON makes lists of shapes."""
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in found.items()
    }
    return Finding(**given)


def _how_it_ended(returncode: int | None) -> str:
    if returncode is None:
        return "the process answered no more, and did not end"
    if returncode < 0:
        return f"the process crashed: {signal.Signals(-returncode).name}"
    return f"the process ended by itself, with exit status {returncode}"
