"""Is this attention right, and if not, which known fault reproduces its numbers: the verb `check`.

`check` asks, and returns a frozen `CheckResult`; `render_text` and `render_json` show it.
"""

from headwise.verbs.check.compute import check
from headwise.verbs.check.result import (
    Caution,
    CheckResult,
    Convention,
    Explanation,
    Fault,
    Nearest,
    ProbeResult,
)

__all__ = ["Caution", "CheckResult", "Convention", "Explanation", "Fault", "Nearest", "ProbeResult", "check"]
