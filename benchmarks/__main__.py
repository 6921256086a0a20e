"""The one driver of the benchmarks.

    python -m benchmarks [NAME ...] [--keep]

Run it from the root of the repository, with the Python that headwise is installed in and on a quiet machine.
Without names every benchmark runs. What was found goes to stdout as JSON, with machine and versions; `--keep`
also writes it to `benchmarks/results/NAME.json`. The exit code is 1 if a figure is above its limit, or misses
the least it must reach; 2 if there is no figure that a limit could hold.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks import (
    attention,
    cli_startup,
    compile_time,
    loss_curves,
    model_opening,
    observe,
    page_paint,
    thin_call,
    training,
    whole_model,
)

BENCHMARKS = {
    "attention": attention,
    "cli_startup": cli_startup,
    "compile_time": compile_time,
    "loss_curves": loss_curves,
    "model_opening": model_opening,
    "observe": observe,
    "page_paint": page_paint,
    "thin_call": thin_call,
    "training": training,
    "whole_model": whole_model,
}
RESULTS = Path(__file__).parent / "results"
PACKAGES = ("headwise", "numpy", "torch", "transformers", "rich", "typer", "numba", "onnxruntime", "jax")


def machine() -> dict[str, Any]:
    """Return what a reader must know of the machine to compare figures."""
    names = [line.split(":")[1].strip() for line in cpu_lines() if line.startswith("model name")]
    return {"processor": names[0] if names else platform.machine(), "cores": os.cpu_count()}


def cpu_lines() -> list[str]:
    """Return the lines in which Linux describes the processors; none elsewhere."""
    description = Path("/proc/cpuinfo")
    return description.read_text(encoding="utf-8").splitlines() if description.exists() else []


def versions() -> dict[str, str]:
    """Return the versions of everything a figure can depend on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):  # the peers of headwise are an extra
            found[name] = version(name)
    chromium = shutil.which("chromium")
    if chromium:
        told = subprocess.run([chromium, "--version"], capture_output=True, text=True, check=True)  # noqa: S603
        found["chromium"] = told.stdout.split()[1]
    return found


def run(name: str) -> dict[str, Any]:
    """Return one benchmark's figures beside their limits and all that they depend on."""
    benchmark = BENCHMARKS[name]
    load = round(os.getloadavg()[0], 2)
    return {
        "benchmark": name,
        "measured": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "load_before": load,
        "versions": versions(),
        "figures": {figure: round(found, 3) for figure, found in benchmark.measure().items()},
        "limits": benchmark.LIMITS,
        **({"least": benchmark.LEAST} if hasattr(benchmark, "LEAST") else {}),
    }


def missed(result: dict[str, Any]) -> list[str]:
    """Return the figures that are above their limit, or below the least they must reach."""
    figures, above, below = result["figures"], result["limits"], result.get("least", {})
    return [name for name, limit in above.items() if name in figures and not figures[name] <= limit] + [
        name for name, least in below.items() if name in figures and not figures[name] >= least
    ]


def unmatched(result: dict[str, Any]) -> list[str]:
    """Return the limits that hold nothing: no figure has their name, or theirs could not be measured."""
    return sorted({*result["limits"], *result.get("least", {})} - set(result["figures"]))


def main() -> int:
    """Run what was asked for; 1 if a figure misses what is set for it, 2 if there is no such figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Run the benchmarks.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--keep", action="store_true", help="write the results to benchmarks/results")
    asked = parser.parse_args()
    unknown = set(asked.names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    results = [run(name) for name in asked.names or BENCHMARKS]
    json.dump(results, sys.stdout, indent=2)
    sys.stdout.write("\n")
    if asked.keep:
        RESULTS.mkdir(exist_ok=True)
        for result in results:
            path = RESULTS / f"{result['benchmark']}.json"
            path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    idle = [(result["benchmark"], name) for result in results for name in unmatched(result)]
    for benchmark, name in idle:
        sys.stderr.write(f"{benchmark}: there is a limit for {name}, and no such figure was measured\n")
    return 2 if idle else int(any(missed(result) for result in results))


if __name__ == "__main__":
    sys.exit(main())
