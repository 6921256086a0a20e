"""One entry of the catalogue of faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headwise.verbs.check.result import Fault

Change = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Entry:
    """A fault, and the changes to the recipe that are its forms; each of them is the fault.

    - is_last_resort: whether its numbers are matched loosely, as those of 16 bits have to be, so that it is
      tried only after all other single ones
    """

    fault: Fault
    changes: tuple[Change, ...]
    is_last_resort: bool = False


def entry(
    name: str,
    what: str,
    mend: str,
    *changes: Change,
    is_last_resort: bool = False,
) -> Entry:
    """Return an entry of the catalogue."""
    return Entry(Fault(name, what, mend), changes, is_last_resort)


def each(knob: str, *values: Any) -> tuple[Change, ...]:
    """Return one change for each value of a knob."""
    return tuple({knob: value} for value in values)
