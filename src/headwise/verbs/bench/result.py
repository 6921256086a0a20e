"""What `bench` finds: frozen values, each work with what every backend took and how far it was off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headwise.verbs.bench.works import Work
from headwise.verbs.machine import Machine

Clock = Literal["thread", "process", "wall"]


@dataclass(frozen=True)
class Peaks:
    """What the machine can do at most, measured in the same run on the same number of threads.

    - fma_flops: FLOPs a second of multiply-adds that touch registers only
    - read_bytes: bytes a second that a plain read of a large buffer brings
    """

    fma_flops: float
    read_bytes: float


@dataclass(frozen=True)
class Timing:
    """One backend on one work.

    - seconds: the median of `repeats` calls
    - largest_error, relative_error: from float64 attention; the second is a share of the largest exact value
    - is_right: whether the error can come from rounding; what is wrong is no peer
    - form: the function or operator that ran
    """

    backend: str
    seconds: float
    repeats: int
    largest_error: float
    relative_error: float
    is_right: bool
    form: str


@dataclass(frozen=True)
class Absence:
    """A backend that could not run a work, and why, in one line."""

    backend: str
    reason: str


@dataclass(frozen=True)
class Row:
    """One work with every backend that was tried on it, headwise first.

    - useful_flops, kv_bytes: of the visible keys; read_seconds: how long a plain read of so many bytes took,
      in turn with the backends
    """

    work: Work
    clock: Clock
    useful_flops: int
    kv_bytes: int
    read_seconds: float
    timings: tuple[Timing, ...]
    absences: tuple[Absence, ...]

    @property
    def headwise(self) -> Timing:
        """The timing of headwise."""
        return self.timings[0]

    @property
    def best_peer(self) -> Timing | None:
        """The fastest other backend that is right; None if there is none."""
        peers = [timing for timing in self.timings[1:] if timing.is_right]
        return min(peers, key=lambda timing: timing.seconds, default=None)

    @property
    def ratio(self) -> float | None:
        """How many times as fast headwise is as the best peer; None if it is wrong or has no peer."""
        peer = self.best_peer
        return peer.seconds / self.headwise.seconds if peer and self.headwise.is_right else None

    def timing_of(self, backend: str) -> Timing | None:
        """Return the timing of a backend; None if it could not run."""
        return next((timing for timing in self.timings if timing.backend == backend), None)


@dataclass(frozen=True)
class Bench:
    """How fast attention is on this machine."""

    machine: Machine
    threads: int
    peaks: Peaks
    rows: tuple[Row, ...]

    @property
    def is_right(self) -> bool:
        """Whether headwise was right on every work."""
        return all(row.headwise.is_right for row in self.rows)

    def fma_share(self, row: Row) -> float:
        """Return the share of the multiply-add peak that headwise's useful FLOPs reach."""
        return row.useful_flops / row.headwise.seconds / self.peaks.fma_flops

    def read_share(self, row: Row) -> float:
        """Return the share of read bandwidth at which headwise reads keys and values, each counted once."""
        return row.read_seconds / row.headwise.seconds
