"""A process that times others keeps the memory it frees, as one does that runs on."""

from __future__ import annotations

import os
import subprocess
import sys

# 1 MiB: an output of the shortest work.
SCRIPT = """
import resource
import torch
from headwise.verbs.bench.heap import settle_heap

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.empty(2**18).fill_(1.0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

torch.set_num_threads(1)
given_back = sum(faults() for _ in range(30))
assert settle_heap()
for _ in range(30):  # until a freed block has room for the next one and its alignment
    faults()
print(given_back, sum(faults() for _ in range(30)))
"""


def test_a_settled_heap_takes_no_page_anew() -> None:
    # Told so, glibc takes such a block from the system each time; else it depends on what was freed before.
    gives_back = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env=os.environ | gives_back, capture_output=True, text=True, check=True)
    given_back, held = map(int, done.stdout.split())
    assert held < 30 * 256 / 10 < given_back
