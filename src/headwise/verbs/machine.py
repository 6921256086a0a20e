"""The machine that a verb measured or examined: facts for the reader of its result."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("headwise", "torch", "numba", "llvmlite", "numpy", "onnxruntime", "jax")


@dataclass(frozen=True)
class Machine:
    """What a reader must know of the machine; `load` is that of the last minute, before the work began."""

    processor: str
    cpus: int
    usable_cpus: int
    load: float
    versions: dict[str, str]


def this_machine() -> Machine:
    """Return the processor, its load, and the versions of every library here that attends."""
    return Machine(
        processor=_processor(),
        cpus=os.cpu_count() or 1,
        usable_cpus=usable_cpus(),
        load=round(os.getloadavg()[0], 2),
        versions={"python": platform.python_version(), **_versions()},
    )


def usable_cpus() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    """Return the processor's name as Linux tells it, or what Python knows."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text(encoding="utf-8").splitlines() if told.exists() else []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
