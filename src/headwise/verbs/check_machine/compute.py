"""From the backends that were asked for to a `MachineCheck`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from queue import Empty, SimpleQueue
from threading import Event

from headwise.errors import ArgumentError
from headwise.verbs.check_machine.backends import BACKENDS, Backend
from headwise.verbs.check_machine.case import Case
from headwise.verbs.check_machine.cases import CASES
from headwise.verbs.check_machine.result import Examined, MachineCheck
from headwise.verbs.check_machine.running import PATIENCE_SECONDS, Unit, examine, units_of
from headwise.verbs.machine import this_machine, usable_cpus

Notify = Callable[[str, float], None]

# More at once would not be quicker: what takes long keeps a processor busy.
MOST_AT_ONCE = 2
_TICK_SECONDS = 0.2


def say_nothing(step: str, share: float) -> None:
    """Take a notice and drop it."""


def check_machine(*, backends: Sequence[str] | None = None, notify: Notify = say_nothing) -> MachineCheck:
    """Say whether attention is right on this machine, whoever computes it.

    Every attention backend here is asked a conformance set (masks, layouts, lengths at tile edges, head
    counts, dtypes, NaN, gradients) on the CPU and held to `headwise.reference`. What is examined is the
    machine, so one backend that is wrong makes it wrong, also if headwise is right: whoever asks wants to
    know before a model runs on it, and can leave out with `backends` what no model of theirs uses. What
    differs by a known convention (an empty row gives NaN, causal aligns to the upper left) is named and is
    not wrong.

    Each backend runs in processes of its own; one that crashes is wrong there, and the others go on.

    Args:
        backends: names of `headwise.verbs.check_machine.backends`; all of them by default.
        notify: called with what is asked next, and the share of everything that is done.

    Returns:
        A frozen result: `is_right`, `wrong`, and findings, each with a line of Python that shows it.

    Raises:
        ArgumentError: a backend is unknown.

    Example:
        >>> import headwise
        >>> found = headwise.check_machine(backends=["headwise_cpu"])
        >>> found.wrong
        ()

    """
    return check_backends(_named(backends), CASES, notify=notify)


def check_backends(
    backends: Sequence[Backend],
    cases: Sequence[Case],
    *,
    notify: Notify = say_nothing,
    patience: float = PATIENCE_SECONDS,
) -> MachineCheck:
    """Return the check of any backends and cases; a backend has `patience` seconds for each case."""
    machine, start = this_machine(), time.monotonic()
    begun: SimpleQueue[tuple[Backend, Unit]] = SimpleQueue()
    total = sum(len(units_of(backend, cases)[0]) for backend in backends)
    stop = Event()

    def examined(backend: Backend) -> Examined:
        return examine(backend, cases, tell=lambda *told: begun.put(told), stop=stop, patience=patience)

    with ThreadPoolExecutor(min(MOST_AT_ONCE, usable_cpus())) as pool:
        try:
            # Who compiles takes longest and begins first.
            order = sorted(backends, key=lambda backend: not backend.is_compiled)
            futures = {backend.name: pool.submit(examined, backend) for backend in order}
            for number, (backend, unit) in enumerate(_begun(begun, futures.values())):
                notify(f"{backend.label}: {unit.case.group}", number / total)
            found = tuple(futures[backend.name].result() for backend in backends)
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)
    notify("done", 1.0)
    return MachineCheck(
        machine=machine,
        examined=found,
        groups=dict(Counter(case.group for case in cases)),
        seconds=time.monotonic() - start,
    )


def _named(names: Sequence[str] | None) -> tuple[Backend, ...]:
    known = {backend.name: backend for backend in BACKENDS}
    for name in names or ():
        if name not in known:
            raise ArgumentError(f"backend {name!r} is unknown; there are {', '.join(known)}")
    return tuple(backend for backend in BACKENDS if not names or backend.name in names)


def _begun(
    queue: SimpleQueue[tuple[Backend, Unit]], futures: Collection[Future[Examined]]
) -> Iterator[tuple[Backend, Unit]]:
    """Yield what is begun until all is done."""
    while True:
        done, _ = wait(futures, timeout=0)
        try:
            yield queue.get(timeout=_TICK_SECONDS)
        except Empty:
            if len(done) == len(futures):
                return
