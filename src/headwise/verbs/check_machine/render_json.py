"""What was found on a machine as one JSON document."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from headwise.verbs.check_machine.result import Examined, Finding, MachineCheck


def to_json(found: MachineCheck) -> dict[str, Any]:
    """Return the document `headwise check --machine --json` prints; what is no number is a string there."""
    return {
        "machine": asdict(found.machine),
        "seconds": found.seconds,
        "is_right": found.is_right,
        "wrong": list(found.wrong),
        "groups": found.groups,
        "backends": {each.backend: _examined(found, each) for each in found.examined},
    }


def _examined(found: MachineCheck, each: Examined) -> dict[str, Any]:
    return {
        "label": each.label,
        "missing": each.missing,
        "is_right": each.is_right,
        "verdicts": {group: each.verdicts(group) for group in found.groups},
        "findings": [_finding(finding) for finding in each.findings],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    told = {name: _plain(value) for name, value in asdict(finding).items()}
    del told["backend"]
    return told


def _plain(value: Any) -> Any:
    """Return a value that JSON has: NaN and infinity are words."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return list(value) if isinstance(value, tuple) else value
