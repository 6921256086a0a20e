"""A process that times others keeps the memory it frees."""

from __future__ import annotations

import subprocess
import sys

# 1 MiB, an output of the shortest work: in a process that has freed nothing larger glibc gives it back each time.
SCRIPT = """
import resource
import torch
from headwise.verbs.bench.heap import hold_heap

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.empty(2**18).fill_(1.0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

torch.set_num_threads(1)
faults()
given_back = faults()
assert hold_heap()
faults()
print(given_back, faults())
"""


def test_a_held_heap_takes_no_page_anew() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    given_back, held = map(int, done.stdout.split())
    assert held <= 8
    assert given_back >= 128
