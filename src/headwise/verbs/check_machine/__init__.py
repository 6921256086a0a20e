"""Is attention right on this machine? The verb `check --machine`.

`cases` is the conformance set, as source; `backends` brings for each library the source that asks it, and
both together are one line. `asking` executes such a line, `exact` says what it must give and what it gives by
other conventions, `judging` tells them apart. `running` and `child` keep each backend in processes of its
own, `compute` makes a frozen `MachineCheck` of it, and `render_text` and `render_json` show it.
"""

from headwise.verbs.check_machine.compute import check_machine
from headwise.verbs.check_machine.result import MachineCheck

__all__ = ["MachineCheck", "check_machine"]
