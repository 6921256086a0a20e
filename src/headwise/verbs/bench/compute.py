"""From the works that were asked for to a `Bench`."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from headwise.counts import checked_size
from headwise.errors import ArgumentError
from headwise.models.short_cause import short_cause
from headwise.verbs.bench.backends import BACKENDS, Backend, Prepared
from headwise.verbs.bench.exact import Error, error_of, exact_output
from headwise.verbs.bench.peaks import higher, measure_peaks, plain_read
from headwise.verbs.bench.problem import Problem, make_problem
from headwise.verbs.bench.result import Absence, Bench, Row, Timing
from headwise.verbs.bench.timing import fair_clock, median_seconds, take_turns
from headwise.verbs.bench.works import Work, works_named
from headwise.verbs.libraries import CannotRunError
from headwise.verbs.machine import this_machine, usable_cpus

Notify = Callable[[str, float], None]

_PLAIN_READ = "plain_read"


def say_nothing(step: str, share: float) -> None:
    """Take a notice and drop it."""


def bench(
    *,
    works: Sequence[str] | None = None,
    threads: int | None = None,
    repeat: int | None = None,
    notify: Notify = say_nothing,
) -> Bench:
    """Time attention on this machine, headwise against every other backend that is installed.

    The backends take turns, and the medians are compared: on one thread by its CPU time, on several by the
    wall. Every output is held to attention in float64, and what is wrong is no peer.

    Args:
        works: names of `headwise.verbs.bench.works`; all of them by default.
        threads: threads of every backend; torch's own setting by default.
        repeat: calls of every backend on every work; by default as many as fit into about a second each.
        notify: called with what is done next, and the share of everything that is done.

    Raises:
        ArgumentError: a work is unknown, there are fewer CPUs than `threads`, or a count is not positive.

    Example:
        >>> import headwise
        >>> found = headwise.bench(works=["short-causal"], threads=1, repeat=1)
        >>> found.rows[0].headwise.is_right
        True

    """
    chosen = works_named(works)
    threads = torch.get_num_threads() if threads is None else _checked_threads(threads)
    if repeat is not None:
        repeat = checked_size("repeat", repeat)
    return bench_works(chosen, BACKENDS, threads=threads, repeat=repeat, notify=notify)


def bench_works(
    works: Sequence[Work],
    backends: Sequence[Backend],
    *,
    threads: int,
    repeat: int | None = None,
    notify: Notify = say_nothing,
) -> Bench:
    """Return the bench of any works and backends; the first backend is the one that is examined."""
    machine = this_machine()
    rows = []
    with _torch_threads(threads):
        notify("what the machine can do", 0.0)
        peaks = measure_peaks(threads)
        for number, work in enumerate(works):
            notify(work.name, number / len(works))
            rows.append(_row(work, backends, threads=threads, repeat=repeat))
            gc.collect()
        peaks = higher(peaks, measure_peaks(threads))
        notify("done", 1.0)
    return Bench(machine=machine, threads=threads, peaks=peaks, rows=tuple(rows))


def _checked_threads(threads: int) -> int:
    threads, usable = checked_size("threads", threads), usable_cpus()
    if threads > usable:
        raise ArgumentError(
            f"threads={threads} is more than the {usable} CPUs this process may use; use {usable}"
        )
    return threads


@contextmanager
def _torch_threads(threads: int) -> Iterator[None]:
    """Let torch, and headwise with it, use this many threads for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _row(work: Work, backends: Sequence[Backend], *, threads: int, repeat: int | None) -> Row:
    problem = make_problem(work)
    exact = exact_output(problem)
    prepared: dict[str, Prepared] = {}
    errors: dict[str, Error] = {}
    absences = []
    for place, backend in enumerate(backends):
        try:
            ready, error = _tried(backend, problem, exact, threads)
        except Exception as fault:  # whatever a peer fails with must not stop the others
            if place == 0:
                raise
            absences.append(Absence(backend.name, _reason(fault)))
            continue
        prepared[backend.name], errors[backend.name] = ready, error
    in_turn = {**prepared, _PLAIN_READ: plain_read(problem, threads)}
    readings = take_turns(in_turn, repeat=repeat, pause=threads > 1)
    clock = fair_clock(readings, threads=threads)
    timings = (
        Timing(
            backend=name,
            seconds=median_seconds(readings[name], clock),
            repeats=len(readings[name]),
            largest_error=errors[name].largest,
            relative_error=errors[name].relative,
            is_right=errors[name].within,
            form=prepared[name].form,
        )
        for name in prepared
    )
    return Row(
        work=work,
        clock=clock,
        useful_flops=problem.useful_flops,
        kv_bytes=problem.kv_bytes,
        read_seconds=median_seconds(readings[_PLAIN_READ], clock),
        timings=tuple(timings),
        absences=tuple(absences),
    )


def _tried(backend: Backend, problem: Problem, exact: Tensor, threads: int) -> tuple[Prepared, Error]:
    """Return the backend ready and warm, and how far its first output is off."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what compilers say to their own users
        prepared = backend.prepare(problem, threads)
        with prepared.around():
            found = prepared.call()
        return prepared, error_of(prepared.output(found), exact, problem.work.dtype)


def _reason(fault: Exception) -> str:
    if isinstance(fault, CannotRunError):
        return str(fault)
    return f"it failed: {type(fault).__name__}: {short_cause(fault)}"
