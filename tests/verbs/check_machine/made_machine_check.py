"""A check written by hand, with every kind of finding."""

from __future__ import annotations

import math

from headwise.verbs.check_machine.result import Examined, Finding, MachineCheck, Verdict
from headwise.verbs.machine import Machine

MACHINE = Machine("Some \x1b[31mCPU", 4, 2, 0.5, {"python": "3.11.7", "torch": "2.13.0"})
LINE = "import torch; out = torch.zeros(1); " + "out = out + 0; " * 20 + "print(out[0].item())"


def right(backend: str, group: str, case: str, form: str = "") -> Finding:
    return Finding(backend, group, case, form, "right", error=1e-7, limit=1e-5)


def finding(backend: str, group: str, case: str, verdict: Verdict) -> Finding:
    return Finding(backend, group, case, "", verdict, error=1.0, limit=0.1, found=1.0, exact=0.0, line="0")


ONE = Examined(
    "one",
    "one",
    (
        right("one", "masks", "a"),
        right("one", "masks", "b", "flag"),
        Finding("one", "masks", "b", "tensor", "wrong", None, None, 0.5, 1e-5, 1.25, 0.75, LINE),
        right("one", "sizes", "c"),
        Finding("one", "masks", "d", "", "cannot", reason="no [bold]softcap[/bold]"),
        Finding("one", "gradients", "e", "", "cannot", reason="no [bold]softcap[/bold]"),
        Finding("one", "gradients", "f", "", "wrong", reason="the process crashed: SIGFPE", line="1 / 0"),
    ),
)
TWO = Examined(
    "two",
    "two",
    (
        right("two", "masks", "a"),
        Finding(
            "two", "masks", "b", "", "differs", "rows give NaN", None, math.inf, 1e-5, math.nan, 0.0, LINE
        ),
        Finding(
            "two", "masks", "d", "", "differs", "rows give NaN", None, math.inf, 1e-5, math.nan, 0.0, "2"
        ),
        Finding("two", "sizes", "c", "", "wrong", None, None, math.inf, 0.0, (2, 3), (3, 2), "3"),
        Finding(
            "two", "gradients", "e", "", "wrong", None, None, 1e-6, 1e-9, 0.1234567891, 0.1234577891, "4"
        ),
        right("two", "gradients", "f"),
    ),
)
ABSENT = Examined("absent", "absent", (), missing="it is not installed; pip install it")
BARRED = Examined("barred", "barred", (Finding("barred", "masks", "a", "", "cannot", reason="no compiler"),))
GROUPS = {"masks": 3, "sizes": 1, "gradients": 2}
MADE = MachineCheck(MACHINE, (ONE, TWO, ABSENT, BARRED), GROUPS, 61.4)
SOUND = MachineCheck(MACHINE, (Examined("one", "one", (right("one", "masks", "a"),)),), {"masks": 1}, 2.0)
