"""How long the light commands take from an empty process to their answer; a person waits for them.

Run it with the Python that headwise is installed in: `python benchmarks/cli_startup.py > startup.json`. It
exits with 1 if the median of a command is above the promised 0.6 s, so run it on a quiet machine.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

PROMISED_SECONDS = 0.6
RUNS = 11
COMMANDS = (
    ("--version",),
    ("plan", "--num-heads", "8", "--d-model", "512"),
    ("plan", "--num-heads", "8", "--d-model", "512", "--json"),
    ("explain", "two-heads"),
    ("explain", "two-heads", "--json"),
)


def seconds_of(arguments: tuple[str, ...]) -> list[float]:
    """Return the wall-clock seconds of each run, after one that warms the file cache."""
    script = Path(sys.executable).with_name("headwise")
    seconds = []
    for _ in range(RUNS + 1):
        start = time.perf_counter()
        subprocess.run([script, *arguments], stdout=subprocess.DEVNULL, check=True)  # noqa: S603 - our own script
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


def measure() -> dict[str, object]:
    """Return the machine, the versions, and fastest, median and slowest run of every command."""
    runs = {" ".join(command): seconds_of(command) for command in COMMANDS}
    return {
        "machine": {"processor": platform.machine(), "cores": os.cpu_count(), "load": os.getloadavg()[0]},
        "versions": {name: version(name) for name in ("headwise", "numpy", "rich", "typer")},
        "python": platform.python_version(),
        "runs": RUNS,
        "seconds": {
            name: {
                "fastest": round(min(taken), 3),
                "median": round(statistics.median(taken), 3),
                "slowest": round(max(taken), 3),
            }
            for name, taken in runs.items()
        },
    }


def main() -> int:
    """Print the measurements as JSON and say by the exit code whether the promise holds."""
    found = measure()
    json.dump(found, sys.stdout, indent=2)
    sys.stdout.write("\n")
    medians = [taken["median"] for taken in found["seconds"].values()]
    return int(max(medians) > PROMISED_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
