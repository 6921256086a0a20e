"""Taking turns: A B C, A B C, ..., so that what else the machine does falls on all alike.

What came before a call does not: who comes behind a backend that reads the same tensors would find them in
the caches, and the first one would not. So each timed call follows some of its own that are not timed. Two:
the second still finds memory and code that others drove out (of a call of 1 ms it costs an eighth).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import NamedTuple

from headwise.verbs.bench.backends import PAUSE_SECONDS, Prepared
from headwise.verbs.bench.result import Clock

SECONDS_EACH = 0.8
LEAST_REPEATS, MOST_REPEATS = 3, 40
VERY_SLOW_SECONDS = 1.0
# What takes longer is not made longer by cold caches, by more than one or two percent.
QUICK_SECONDS = 0.02
WARMING_CALLS = 2
# What a thread's own clock may miss before we say that the work went on elsewhere.
MISSED_SHARE = 0.05
SHORTEST_TELLING_SECONDS = 1e-4


class Reading(NamedTuple):
    """Seconds by each clock: CPU of the calling thread, CPU of the whole process, and the wall."""

    thread: float
    process: float
    wall: float


def timed(prepared: Prepared, *, after: float, warmed: bool) -> Reading:
    """Return what one call takes after a pause of so many seconds and, if `warmed`, calls not timed."""
    time.sleep(after)
    with prepared.around():
        for _ in range(WARMING_CALLS if warmed else 0):
            prepared.call()
        start = time.perf_counter(), time.process_time(), time.thread_time()
        prepared.call()
        end = time.thread_time(), time.process_time(), time.perf_counter()
    return Reading(thread=end[0] - start[2], process=end[1] - start[1], wall=end[2] - start[0])


def repeats_for(seconds: float) -> int:
    """Return how often to time what takes this long: often what is quick, once what is very slow."""
    least = LEAST_REPEATS if seconds < VERY_SLOW_SECONDS else 1
    return max(least, min(MOST_REPEATS, int(SECONDS_EACH / max(seconds, 1e-9))))


def take_turns(
    prepared: Mapping[str, Prepared], *, repeat: int | None, pause: bool
) -> dict[str, list[Reading]]:
    """Return the readings of every backend, all of them warm.

    Each is timed `repeat` times, or as often as its first reading lets it; what is slow sits some turns out.
    The first reading of what is quick is not warm and only tells that it is quick.
    """
    pause_seconds = PAUSE_SECONDS if pause else 0.0
    first = {name: timed(each, after=pause_seconds, warmed=False) for name, each in prepared.items()}
    is_quick = {name: reading.wall < QUICK_SECONDS for name, reading in first.items()}
    readings = {name: [] if is_quick[name] else [reading] for name, reading in first.items()}
    due = {name: repeat or repeats_for(reading.wall) for name, reading in first.items()}
    turns = max(due.values())
    for turn in range(turns):
        for name, each in prepared.items():
            # Spread evenly over all turns.
            if len(readings[name]) * turns <= turn * due[name]:
                readings[name].append(timed(each, after=pause_seconds, warmed=is_quick[name]))
    return readings


def fair_clock(readings: Mapping[str, list[Reading]], *, threads: int) -> Clock:
    """Return the clock by which all backends can be compared.

    Several threads are compared by the wall. One thread is compared by its own CPU time, to which nothing
    else on the machine adds; if any backend works outside that thread, by the CPU time of the process.
    """
    if threads > 1:
        return "wall"
    for taken in readings.values():
        thread = statistics.median(reading.thread for reading in taken)
        process = statistics.median(reading.process for reading in taken)
        missed = process - thread
        if missed > SHORTEST_TELLING_SECONDS and missed > MISSED_SHARE * process:
            return "process"
    return "thread"


def median_seconds(readings: list[Reading], clock: Clock) -> float:
    """Return the median by one clock."""
    return statistics.median(getattr(reading, clock) for reading in readings)
