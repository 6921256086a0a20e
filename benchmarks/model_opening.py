"""How long a model of the catalogue takes to open the second time, in a fresh process, imports apart."""

from __future__ import annotations

import statistics
import subprocess
import sys

RUNS = 5
MODELS = {"smollm2_135m_seconds": "smollm2-135m", "minilm_l6_seconds": "minilm-l6"}
LIMITS = {"smollm2_135m_seconds": 3.0}

OPEN = """
import sys, time
import torch, transformers
from headwise.models.opening.opened_model import open_model
start = time.perf_counter()
open_model(sys.argv[1])
print(time.perf_counter() - start)
"""


def measure() -> dict[str, float]:
    """Return the median seconds to open each model, after a first opening that may download and convert."""
    return {name: statistics.median(seconds_to_open(model)) for name, model in MODELS.items()}


def seconds_to_open(model: str) -> list[float]:
    """Return the seconds of each opening, each in a process of its own."""
    command = [sys.executable, "-c", OPEN, model]
    seconds = []
    for _ in range(RUNS + 1):
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - our own command
        seconds.append(float(done.stdout))
    return seconds[1:]
