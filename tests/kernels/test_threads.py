"""Callers side by side, forks, interrupts: always the bits of one thread."""

import gc
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest

from headwise.kernels import calls, compiled, team, ways
from headwise.kernels.team import TEAM

from ..hang import must_end
from .children import exit_code_of_child
from .problems import Threaded, threads, workers

PROBLEMS = [Threaded(number) for number in range(9)]

in_time = pytest.mark.usefixtures("guarded")

# From Python 3.12 on a fork beside threads is warned of: that it works is what is tested.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
    # So does JAX, if another test has loaded it.
    pytest.mark.filterwarnings("ignore:os.fork.. was called.*JAX:RuntimeWarning"),
]


@pytest.fixture(params=["team", "workers"])
def helpers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let OpenMP's team help, or workers of the kernel's own, and say which."""
    named: str = request.param
    PROBLEMS[0].answer()  # the team is lent when the kernel is first needed
    if named == "workers":
        monkeypatch.setattr(TEAM, "_parallel", None)
    monkeypatch.setattr(team, "_PAUSE_SECONDS", 0.0)
    assert TEAM.is_ready == (named == "team")
    return named


@pytest.fixture
def guarded(helpers: str) -> Iterator[None]:
    assert all_right()  # by one thread; and nothing is left to compile
    with must_end():
        yield


def all_right() -> bool:
    return all(problem.is_right() for problem in PROBLEMS)


@in_time
@pytest.mark.parametrize("count", range(1, 9))
def test_any_number_of_threads(count: int, helpers: str) -> None:
    with threads(count):
        assert all_right()
    assert helpers == "team" or len(workers()) >= count - 1


@in_time
@pytest.mark.parametrize("count", [2, 5])
def test_eight_callers_at_once(count: int) -> None:
    begin = threading.Barrier(8)

    def call(number: int) -> bool:
        begin.wait()
        return all(PROBLEMS[(number + turn) % len(PROBLEMS)].is_right() for turn in range(40))

    with threads(count), ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(8)))


@in_time
def test_a_forked_child_has_workers_of_its_own(helpers: str) -> None:
    with threads(4):
        assert all_right()
        assert helpers == "team" or workers()
        assert exit_code_of_child(lambda: not workers() and all_right() and len(workers()) == 3) == 0
        assert all_right()


@in_time
def test_a_child_of_a_child() -> None:
    with threads(3):
        assert exit_code_of_child(lambda: all_right() and exit_code_of_child(all_right) == 0) == 0


@in_time
def test_a_fork_while_others_compute() -> None:
    stop = threading.Event()

    def compute() -> bool:
        right = True
        while not stop.is_set():
            right = right and all_right()
        return right

    with threads(3), ThreadPoolExecutor(2) as pool:
        others = [pool.submit(compute) for _ in range(2)]
        try:
            codes = [exit_code_of_child(all_right) for _ in range(8)]
        finally:
            stop.set()
        assert codes == [0] * 8
        assert all(other.result() for other in others)


@in_time
def test_a_fork_waits_for_what_is_being_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, end = threading.Event(), threading.Event()
    entry = compiled.entry_for(ways.STREAMED)

    def compile_slowly(make: object) -> object:
        begun.set()
        end.wait()
        return entry

    monkeypatch.setattr(compiled, "_entries", {})
    monkeypatch.setattr(compiled, "kept_on_disk", compile_slowly)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(compiled.entry_for, ways.STREAMED)
        begun.wait()
        threading.Timer(0.2, end.set).start()
        assert exit_code_of_child(lambda: compiled.entry_for(ways.STREAMED) is entry) == 0
        assert other.result() is entry


@contextmanager
def interruptible() -> Iterator[None]:
    """Let the timer of the process's own time interrupt the block as a person would; afterwards it is off."""
    before = signal.signal(signal.SIGVTALRM, signal.default_int_handler)
    gc.disable()  # it calls functions of others, JAX's for one, and an interrupt in these is lost
    try:
        yield
    finally:
        # Whatever ended the block: a signal that nobody handles any more would end Python.
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        gc.enable()
        signal.signal(signal.SIGVTALRM, before)


@pytest.mark.usefixtures("helpers")
def test_an_interrupt_leaves_the_workers_usable() -> None:
    assert all_right()
    with interruptible(), threads(3):
        for turn in range(1, 40):
            with must_end():  # each turn: where others have the cores, all of them take their time
                with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it comes at some time in here
                    signal.setitimer(signal.ITIMER_VIRTUAL, 0.0007 * turn)
                    while True:
                        PROBLEMS[0].answer()
                assert all_right()


def test_an_interrupted_call_leaves_its_memory_to_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = []

    @contextmanager
    def helping(task: partial[None], helpers: int) -> Iterator[None]:
        _run, _frame, (_owners, scratch) = task.args
        memory.append(scratch)
        if len(memory) == 2:
            raise KeyboardInterrupt
        yield

    monkeypatch.setattr(TEAM, "_parallel", None)
    monkeypatch.setattr(calls.POOL, "helping", helping)
    with threads(2):
        PROBLEMS[0].answer()
        with pytest.raises(KeyboardInterrupt):
            PROBLEMS[0].answer()
        PROBLEMS[0].answer()
    first, interrupted, last = memory
    assert np.shares_memory(first, interrupted), "memory is kept from call to call"
    assert not np.shares_memory(interrupted, last)
