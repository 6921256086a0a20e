"""What `check_machine` finds: frozen values, each case with what every backend made of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headwise.verbs.machine import Machine

Verdict = Literal["right", "differs", "wrong", "cannot"]
# Of a case that is asked in several forms, the first of these that one of them has is the case's.
WORST_FIRST: tuple[Verdict, ...] = ("wrong", "differs", "right", "cannot")

Shown = float | tuple[int, ...]


@dataclass(frozen=True)
class Finding:
    """What came of one case, asked of one backend in one form.

    - verdict: `"right"`; `"differs"`, which is right by another convention; `"wrong"`; or `"cannot"`
    - convention: by which it is right
    - reason: why it cannot, or what it did instead of an answer
    - error, limit: the difference that is furthest beyond what rounding explains, and what that is there
    - found, exact: the numbers at that place, or shapes
    - line: one line of Python that prints what was found; None where there is nothing to show
    """

    backend: str
    group: str
    case: str
    form: str
    verdict: Verdict
    convention: str | None = None
    reason: str | None = None
    error: float | None = None
    limit: float | None = None
    found: Shown | None = None
    exact: Shown | None = None
    line: str | None = None


@dataclass(frozen=True)
class Examined:
    """One backend with all its findings; `missing` says why it was asked nothing."""

    backend: str
    label: str
    findings: tuple[Finding, ...]
    missing: str | None = None

    @property
    def is_right(self) -> bool:
        """Whether nothing it computed is wrong."""
        return all(finding.verdict != "wrong" for finding in self.findings)

    def verdicts(self, group: str) -> dict[str, Verdict]:
        """Return the verdict on each case of a group that it was asked: the worst of its forms."""
        found: dict[str, list[Verdict]] = {}
        for finding in self.findings:
            if finding.group == group:
                found.setdefault(finding.case, []).append(finding.verdict)
        return {case: min(verdicts, key=WORST_FIRST.index) for case, verdicts in found.items()}


@dataclass(frozen=True)
class MachineCheck:
    """Whether attention is right on this machine.

    - examined: the backends in their order
    - groups: the groups of the conformance set, each with the number of its cases
    - seconds: how long it took
    """

    machine: Machine
    examined: tuple[Examined, ...]
    groups: dict[str, int]
    seconds: float

    @property
    def wrong(self) -> tuple[str, ...]:
        """The backends that compute something wrong."""
        return tuple(each.backend for each in self.examined if not each.is_right)

    @property
    def is_right(self) -> bool:
        """Whether no backend computes anything wrong; what differs by convention is not wrong."""
        return not self.wrong

    def of(self, backend: str) -> Examined:
        """Return what was found of a backend."""
        return next(each for each in self.examined if each.backend == backend)
