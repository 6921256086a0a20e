"""The worker threads by themselves."""

import gc
import threading
import weakref
from collections.abc import Iterator
from functools import partial

import pytest

from headwise.kernels.pool import WorkerPool

from ..hang import must_end
from .problems import workers


@pytest.fixture(autouse=True)
def guarded() -> Iterator[None]:
    with must_end():
        yield


def test_as_many_helpers_run_at_once_as_were_asked_for() -> None:
    meeting = threading.Barrier(4)
    with WorkerPool().helping(lambda: meeting.wait() and None, 3):
        meeting.wait()  # is passed when all four are here


def test_no_helper_is_asked_for() -> None:
    before = len(workers())
    with WorkerPool().helping(lambda: pytest.fail("somebody helped"), 0):
        pass
    assert len(workers()) == before


def test_workers_are_kept() -> None:
    pool, before = WorkerPool(), len(workers())
    for _ in range(20):
        meeting = threading.Barrier(3)
        with pool.helping(lambda meeting=meeting: meeting.wait() and None, 2):
            meeting.wait()
    assert len(workers()) == before + 2


def test_an_error_costs_no_worker_its_life() -> None:
    pool, before = WorkerPool(), len(workers())
    for _ in range(3):
        begun = threading.Event()

        def fail(begun: threading.Event = begun) -> None:
            begun.set()
            raise ValueError("the caller meets this too")

        with pool.helping(fail, 1):
            begun.wait()
    done = threading.Event()
    with pool.helping(done.set, 1):
        done.wait()
    assert len(workers()) == before + 1


class Tensors:
    """Stands for what a task holds on to."""


def test_a_task_that_found_no_worker_is_taken_back() -> None:
    pool, begun, free = WorkerPool(), threading.Event(), threading.Event()
    ran = []

    def keep_busy() -> None:
        begun.set()
        free.wait()

    tensors = Tensors()
    last_use = weakref.ref(tensors)
    with pool.helping(keep_busy, 1):
        begun.wait()
        with pool.helping(lambda held=tensors: ran.append(held), 1):
            del tensors
            assert last_use() is not None
        gc.collect()
        assert last_use() is None
        free.set()
    done = threading.Event()
    with pool.helping(done.set, 1):
        done.wait()
    assert ran == []


def test_an_idle_worker_holds_on_to_nothing() -> None:
    pool, done = WorkerPool(), threading.Event()
    tensors = Tensors()
    last_use = weakref.ref(tensors)
    with pool.helping(lambda held=tensors: done.set(), 1):
        done.wait()
    del tensors
    while last_use() is not None:  # the worker is on its way back
        pass


def test_where_no_thread_can_be_started_the_caller_works_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = WorkerPool()

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pool.helping(lambda: pytest.fail("somebody helped"), 2):
            pass
    done = threading.Event()
    with pool.helping(done.set, 1):
        done.wait()


def test_python_ends_when_what_the_last_worker_held_was_given_back() -> None:
    pool, begun, may_end = WorkerPool(), threading.Event(), threading.Event()
    tensors = Tensors()
    given_back = weakref.ref(tensors)

    def task(_held: Tensors) -> None:
        begun.set()
        may_end.wait()

    with pool.helping(partial(task, tensors), 1):
        begun.wait()
    del tensors
    assert given_back() is not None
    threading.Timer(0.05, may_end.set).start()
    pool._end()
    assert may_end.is_set()
    assert given_back() is None


def test_python_does_not_wait_for_ever_for_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwise.kernels.pool._END_SECONDS", 0.01)
    pool, begun, may_end = WorkerPool(), threading.Event(), threading.Event()

    def task() -> None:
        begun.set()
        may_end.wait()

    with pool.helping(task, 1):
        begun.wait()
    pool._end()
    assert not may_end.is_set()
    may_end.set()


def test_nobody_helps_at_the_end_of_python() -> None:
    pool, before = WorkerPool(), len(workers())
    meeting = threading.Barrier(2)
    with pool.helping(lambda: meeting.wait() and None, 1):
        meeting.wait()
    pool._end()
    helped = threading.Event()
    with pool.helping(helped.set, 2):
        assert not helped.wait(0.1)  # what the worker that is there would need for it
    assert len(workers()) == before + 1
