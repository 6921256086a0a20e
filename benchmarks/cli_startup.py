"""How long the light commands take from an empty process to their answer; a person waits for them."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

RUNS = 11
COMMANDS = {
    "plan_seconds": ("plan", "--num-heads", "8", "--d-model", "512"),
    "plan_json_seconds": ("plan", "--num-heads", "8", "--d-model", "512", "--json"),
    "explain_seconds": ("explain", "two-heads"),
    "explain_json_seconds": ("explain", "two-heads", "--json"),
}
LIMITS = dict.fromkeys(COMMANDS, 0.6)


def measure() -> dict[str, float]:
    """Return the median wall-clock seconds of every command."""
    return {name: statistics.median(seconds_of(command)) for name, command in COMMANDS.items()}


def seconds_of(arguments: tuple[str, ...]) -> list[float]:
    """Return the seconds of each run, after one that warms the file cache."""
    script = Path(sys.executable).with_name("headwise")
    seconds = []
    for _ in range(RUNS + 1):
        start = time.perf_counter()
        subprocess.run([script, *arguments], stdout=subprocess.DEVNULL, check=True)  # noqa: S603 - our own script
        seconds.append(time.perf_counter() - start)
    return seconds[1:]
