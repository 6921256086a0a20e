"""What `check` found as one JSON document; an error that is no number is null."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

from headwise.verbs.check.result import CheckResult, Explanation, Fault, Nearest, ProbeResult


def to_json(found: CheckResult) -> dict[str, Any]:
    """Return the document that `headwise check FILE.py:NAME --json` prints."""
    return {
        "name": found.name,
        "form": found.form.value,
        "sizes": asdict(found.sizes),
        "is_right": found.is_right,
        "error": _finite(found.error),
        "allowed": _finite(found.allowed),
        "fault_names": list(found.fault_names),
        "conventions": {convention.name: convention.value for convention in found.conventions},
        "cautions": [asdict(caution) for caution in found.cautions],
        "explanations": [_explanation(explanation) for explanation in found.explanations],
        "nearest": None if found.nearest is None else _nearest(found.nearest),
        "searched": found.searched,
        "departures": [asdict(departure) for departure in found.departures],
        "probes": [_probe(probe) for probe in found.probes],
    }


def _explanation(explanation: Explanation) -> dict[str, Any]:
    return {
        "name": explanation.name,
        "faults": _faults(explanation.faults),
        "error": _finite(explanation.error),
        "allowed": _finite(explanation.allowed),
    }


def _nearest(nearest: Nearest) -> dict[str, Any]:
    return {
        "faults": _faults(nearest.faults),
        "probes_reproduced": nearest.probes_reproduced,
        "error": _finite(nearest.error),
        "allowed": _finite(nearest.allowed),
    }


def _probe(probe: ProbeResult) -> dict[str, Any]:
    return {
        "name": probe.name,
        "what": probe.what,
        "error": _finite(probe.error),
        "allowed": _finite(probe.allowed),
        "is_right": probe.is_right,
    }


def _faults(faults: Sequence[Fault]) -> list[dict[str, str]]:
    return [asdict(fault) for fault in faults]


def _finite(number: float) -> float | None:
    return number if isfinite(number) else None
