"""Is this attention right, and if not, which known fault reproduces its numbers: the verb `check`.

`check` asks, and returns a frozen `CheckResult`; `render_text` and `render_json` show it. `child` runs a
user's file in a process of its own, and shows what comes back without torch: `check` loads at its first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headwise.verbs.check.result import (
    Caution,
    CheckResult,
    Convention,
    Departure,
    Explanation,
    Fault,
    Nearest,
    ProbeResult,
)

if TYPE_CHECKING:
    from headwise.verbs.check.compute import check

__all__ = [
    "Caution",
    "CheckResult",
    "Convention",
    "Departure",
    "Explanation",
    "Fault",
    "Nearest",
    "ProbeResult",
    "check",
]


def __getattr__(name: str) -> Any:
    if name != "check":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = import_module("headwise.verbs.check.compute").check
    globals()[name] = found
    return found
