"""How far a process's memory rises above its inputs, each time in a process of its own."""

from __future__ import annotations

import subprocess
import sys

_PROBE = """
import re, sys, torch
from pathlib import Path
torch.set_num_threads(1)
def status(name):
    return int(re.search(name + r":\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024
{preparation}
prepared = inputs(64)
run(*prepared)  # compiles
prepared = inputs(int(sys.argv[1]))
Path("/proc/self/clear_refs").write_text("5")  # the highest of its memory is what it is now
before = status("VmRSS")
kept = run(*prepared)
print(status("VmHWM") - before)
"""


def peak_mebibytes(preparation: str, length: int) -> float:
    """Return the MiB by which `run(*inputs(length))` rises above its inputs, what it returns included.

    Args:
        preparation: Python source that defines `inputs` and `run`; `torch` is there.
        length: of the inputs.

    """
    done = subprocess.run(
        [sys.executable, "-c", _PROBE.format(preparation=preparation), str(length)],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)
