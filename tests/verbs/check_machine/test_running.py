"""Each backend is asked in processes of its own: what it does to them is told, and harms no other."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from threading import Event, Timer

import pytest

from headwise.verbs.check_machine import running
from headwise.verbs.check_machine.backends import Backend
from headwise.verbs.check_machine.case import Case
from headwise.verbs.check_machine.cases import CASES
from headwise.verbs.check_machine.compute import check_backends
from headwise.verbs.check_machine.result import Finding, MachineCheck
from headwise.verbs.check_machine.running import examine, units_of

from ...hang import must_end
from .fewer_cases import CAUSAL, FEW_KEYS, NO_KEYS, NO_MASK, SHORT

pytestmark = pytest.mark.usefixtures("planted_found")
ALL = (NO_MASK, FEW_KEYS, NO_KEYS, SHORT)


def planted(name: str) -> Backend:
    backend: Backend = getattr(import_module("planted_backends"), name)()
    return backend


def asked(
    name: str, cases: Sequence[Case] = ALL, *, beside: tuple[str, ...] = (), patience: float = 60.0
) -> MachineCheck:
    """Return what was found of a planted backend, and of those that were asked at the same time."""
    return check_backends([planted(each) for each in (name, *beside)], cases, patience=patience)


def told(found: MachineCheck, name: str) -> list[tuple[str, str, str | None]]:
    return [(finding.case, finding.verdict, finding.reason) for finding in found.of(name).findings]


def assert_plain_is_right(found: MachineCheck) -> None:
    assert told(found, "plain") == [(case.name, "right", None) for case in ALL]


def prints(finding: Finding) -> subprocess.CompletedProcess[str]:
    """Return what the line of a finding does in a new process."""
    assert finding.line is not None
    return subprocess.run([sys.executable, "-c", finding.line], capture_output=True, text=True, check=False)


def test_a_wrong_backend_is_caught_and_its_line_shows_it() -> None:
    cases = (NO_MASK, CAUSAL)
    found = asked("ScaleForgotten", cases)
    assert found.wrong == ("scale_forgotten",)
    assert not found.is_right
    for finding in found.of("scale_forgotten").findings:
        assert finding.verdict == "wrong"
        assert isinstance(finding.found, float)
        assert isinstance(finding.exact, float)
        assert finding.error == abs(finding.found - finding.exact)
        assert finding.error > 1000 * finding.limit
        assert float(prints(finding).stdout) == finding.found


def test_one_number_that_is_off_by_little_is_caught_where_it_is() -> None:
    found = asked("OneValueOff", (FEW_KEYS, NO_MASK))
    (few, off) = found.of("one_value_off").findings
    assert few.verdict == "right"
    assert off.verdict == "wrong"
    assert off.line is not None
    assert off.line.endswith("; print(out[0, 1, 2, 3].item())")
    assert off.error == pytest.approx(0.001, rel=0.01)


def test_another_shape_is_wrong() -> None:
    (finding,) = asked("OtherShape", (NO_MASK,)).of("other_shape").findings
    assert (finding.verdict, finding.found, finding.exact) == ("wrong", (2, 11, 4, 16), (2, 4, 11, 16))
    assert prints(finding).stdout == "(2, 11, 4, 16)\n"


def test_an_error_that_is_no_refusal_is_wrong() -> None:
    found = asked("Raising")
    reason = "raises IndexError: list index out of range"
    assert told(found, "raising") == [(case.name, "wrong", reason) for case in ALL]
    assert "IndexError" in prints(found.of("raising").findings[0]).stderr


def test_a_crash_is_wrong_and_the_rest_is_asked_in_a_new_process() -> None:
    found = asked("Crashing", beside=("Plain",))
    assert told(found, "crashing") == [
        (NO_MASK.name, "right", None),
        (FEW_KEYS.name, "right", None),
        (NO_KEYS.name, "wrong", "the process crashed: SIGFPE"),
        (SHORT.name, "right", None),
    ]
    assert prints(found.of("crashing").findings[2]).returncode == -8
    assert_plain_is_right(found)


def test_who_crashes_again_and_again_is_given_up() -> None:
    found = asked("AlwaysCrashing")
    crashed = [(case.name, "wrong", "the process crashed: SIGSEGV") for case in ALL[:3]]
    given_up = (SHORT.name, "cannot", "not asked: it crashed 3 times before")
    assert told(found, "always_crashing") == [*crashed, given_up]


def test_a_process_that_ends_by_itself_is_wrong() -> None:
    found = asked("Exiting")
    assert told(found, "exiting")[:3] == [
        (NO_MASK.name, "right", None),
        (FEW_KEYS.name, "wrong", "the process ended by itself, with exit status 3"),
        (NO_KEYS.name, "right", None),
    ]


def test_who_does_not_answer_is_ended_and_not_accused() -> None:
    found = asked("Hanging", beside=("Plain",), patience=2.0)
    assert told(found, "hanging") == [
        (NO_MASK.name, "right", None),
        (FEW_KEYS.name, "cannot", "no answer within 2 seconds"),
        (NO_KEYS.name, "cannot", "not asked: it did not answer before"),
        (SHORT.name, "cannot", "not asked: it did not answer before"),
    ]
    assert found.is_right
    assert_plain_is_right(found)


def test_patience_grows_where_processes_wait_for_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "usable_cpus", lambda: 2)
    for load, crowding in ((0.3, 1.0), (1.9, 1.0), (12.0, 6.0)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert running._crowding() == crowding


def test_what_is_not_installed_is_told_once() -> None:
    found = asked("Missing", beside=("Plain",))
    missing = found.of("missing")
    assert missing.findings == ()
    assert missing.missing == "No such library is not installed; pip install 'headwise[bench]'"
    assert found.is_right
    assert_plain_is_right(found)


def test_a_backend_whose_process_cannot_begin_is_wrong_and_asked_nothing_more() -> None:
    found = asked("Unbuildable")
    not_asked = "not asked: its process did not get so far as to be asked"
    assert told(found, "unbuildable") == [
        (NO_MASK.name, "wrong", "the process ended by itself, with exit status 1"),
        *((case.name, "cannot", not_asked) for case in ALL[1:]),
    ]


def test_who_compiles_for_seconds_is_asked_fewer_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = planted("Plain")
    units, _ = units_of(backend, CASES)
    monkeypatch.setattr(type(backend), "is_compiled", True)
    fewer, _ = units_of(backend, CASES)
    assert [unit.case for unit in fewer] == [unit.case for unit in units if unit.case.compiled]
    assert 15 < len(fewer) < len(units) / 3


def test_what_a_backend_has_no_form_of_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_child", None)
    cases = [case for case in CASES if case.wants == "logsumexp"]
    found = examine(planted("Plain"), cases, tell=lambda *_: None, stop=Event())
    assert {finding.reason for finding in found.findings} == {"returns no logsumexp"}
    assert len(found.findings) == len(cases)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Every child that is started from here on."""
    children: list[subprocess.Popen[bytes]] = []
    start: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen

    def noted(*arguments: object, **options: object) -> subprocess.Popen[bytes]:
        children.append(start(*arguments, **options))
        return children[-1]

    monkeypatch.setattr(subprocess, "Popen", noted)
    return children


def test_to_stop_ends_the_child_at_once(started: list[subprocess.Popen[bytes]]) -> None:
    stop = Event()
    Timer(0.5, stop.set).start()
    with must_end():
        examine(planted("Hanging"), [FEW_KEYS], tell=lambda *_: None, stop=stop, patience=3600.0)
    assert [child.poll() for child in started] == [-9]


def test_an_interrupt_ends_every_child(started: list[subprocess.Popen[bytes]]) -> None:
    def interrupted(step: str, share: float) -> None:
        raise KeyboardInterrupt

    with must_end(), pytest.raises(KeyboardInterrupt):
        check_backends([planted("Hanging"), planted("Hanging")], [FEW_KEYS], notify=interrupted)
    assert started
    assert all(child.poll() == -9 for child in started)
