"""The backward pass takes memory that grows with the tokens, and not with their square."""

from __future__ import annotations

import subprocess
import sys

MEMORY = """
import re, sys, torch
from pathlib import Path
from headwise.masks import Causal
from headwise.ops import arguments, kernel, kernel_gradient
from headwise.ops.results import Wanted
torch.set_num_threads(1)
length = int(sys.argv[1])
def status(name):
    return int(re.search(name + r":\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024
def differentiated(made, bias):
    call = arguments.check(*made[:3], mask=Causal(), bias=bias, sinks=torch.zeros(1))
    attended = kernel.attend_for_gradient(call)
    return kernel_gradient.gradients(call, attended, made[3], None, wanted=Wanted(*[True] * 5))
differentiated(torch.randn(4, 1, 1, 64, 16), torch.zeros(1, 64))  # compiles
made, bias = torch.randn(4, 1, 1, length, 16), torch.zeros(1, length)
Path("/proc/self/clear_refs").write_text("5")  # the highest of its memory is what it is now
before = status("VmRSS")
kept = differentiated(made, bias)
print(status("VmHWM") - before)
"""


def peak_mebibytes(length: int) -> float:
    """Return how far both passes rise above their inputs, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(length)], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def test_memory_grows_with_the_tokens() -> None:
    """All weights would be 1 GiB at 16,384 tokens, and four times those at 8,192."""
    short, long = peak_mebibytes(8192), peak_mebibytes(16384)
    assert long < 24.0
    assert long < 2.5 * short
