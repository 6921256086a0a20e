"""What `check` finds: frozen values, which `render_text` and `render_json` show."""

from __future__ import annotations

from dataclasses import dataclass

from headwise.verbs.check.asking import Form, Sizes


@dataclass(frozen=True)
class Fault:
    """One known way to get attention wrong.

    - name: its public id, in kebab-case
    - what: one sentence, what was done
    - mend: one sentence, what to do instead
    """

    name: str
    what: str
    mend: str


@dataclass(frozen=True)
class Explanation:
    """One fault, or two at once, that reproduce the subject's numbers on every probe.

    - faults: in the order of the catalogue
    - error, allowed: as of a probe, the one that comes nearest to its limit
    """

    faults: tuple[Fault, ...]
    error: float
    allowed: float

    @property
    def name(self) -> str:
        """The names of its faults: "scale-missing", or "scale-missing and causal-hides-self"."""
        return " and ".join(fault.name for fault in self.faults)


@dataclass(frozen=True)
class Nearest:
    """What came nearest where nothing fits: the probes it reproduces, and how far it is off on the others."""

    faults: tuple[Fault, ...]
    probes_reproduced: int
    error: float
    allowed: float


@dataclass(frozen=True)
class Convention:
    """What it does where attention may do one thing or another.

    - name: what is asked, such as "causal alignment"
    - value: what was measured, such as "lower_right"
    """

    name: str
    value: str


@dataclass(frozen=True)
class Caution:
    """What is not wrong, but goes wrong easily: a fault's name and mend, and what was seen here."""

    name: str
    what: str
    mend: str


@dataclass(frozen=True)
class Departure:
    """What was declared of an attention and is not so, in words: "scale", "0.5", "head_dim ** -0.5"."""

    name: str
    declared: str
    found: str


@dataclass(frozen=True)
class ProbeResult:
    """One question that was asked.

    - name: its id; what: what was asked, in words
    - error: largest difference from the right answer, under the conventions that come nearest; NaN where one
      is NaN and the other is not
    - allowed: what rounding may come to
    """

    name: str
    what: str
    error: float
    allowed: float

    @property
    def is_right(self) -> bool:
        """Whether the error can come from rounding."""
        return self.error <= self.allowed


@dataclass(frozen=True)
class CheckResult:
    """Whether an attention is right; its conventions; and which fault reproduces its numbers where it is not.

    - name, form, sizes: of the attention that was examined
    - is_right: under some set of conventions, and those that were declared, every probe was answered rightly
    - error, allowed: of the probe that is furthest beyond what it is allowed, or comes nearest to it
    - conventions: what it does where attention may do one thing or another
    - cautions: what is not wrong but goes wrong easily
    - explanations: empty if it is right, or if nothing in the catalogue fits; one is the fault (or the pair);
      several cannot be told apart by any probe, and one of them it is
    - nearest: what came nearest, where nothing fits
    - searched: how many faults and pairs of faults were tried
    - probes: every question
    - departures: where it is right but for what was declared, what of that is otherwise; else empty
    """

    name: str
    form: Form
    sizes: Sizes
    is_right: bool
    error: float
    allowed: float
    conventions: tuple[Convention, ...]
    cautions: tuple[Caution, ...]
    explanations: tuple[Explanation, ...]
    nearest: Nearest | None
    searched: int
    probes: tuple[ProbeResult, ...]
    departures: tuple[Departure, ...] = ()

    @property
    def fault_names(self) -> tuple[str, ...]:
        """The names of what reproduces its numbers: "scale-missing", "scale-missing and kv-heads-tiled"."""
        return tuple(explanation.name for explanation in self.explanations)
