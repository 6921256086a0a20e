"""User code as it was written, and with a line in it that somebody got wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

STYLES = Path(__file__).parent / "styles"

Change = tuple[str, str]  # what stood there, what stands there now


@dataclass(frozen=True)
class Specimen:
    """Right user code: the file's name, what of it is handed to `check`, and what its author says of it."""

    style: str
    make: Callable[[ModuleType], Any]
    declared: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Slip:
    """What was got wrong, where, and what the author says of it beside what the specimen's does."""

    fault: str
    specimen: str
    changes: tuple[Change, ...]
    declared: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.fault.replace(' and ', '+')}-in-{self.specimen}"


def slip(fault: str, specimen: str, *changes: Change, **declared: Any) -> Slip:
    return Slip(fault, specimen, changes, declared)


def loaded(style: str, changes: tuple[Change, ...] = ()) -> ModuleType:
    """The file of that name as a module, with each change made, in the one place it fits."""
    source = (STYLES / f"{style}.py").read_text()
    for was, now in changes:
        found = source.count(was)
        if found != 1:
            raise LookupError(f"{style}.py has {found} places like {was!r}; a change needs exactly one")
        source = source.replace(was, now)
    module = ModuleType(style)
    exec(compile(source, f"{style}.py", "exec"), vars(module))  # noqa: S102  # our own specimens
    return module


def made(specimen: Specimen, changes: tuple[Change, ...] = (), *, seed: int = 0) -> Any:
    """What is handed to `check`, as its author has it at hand: a function, or a module with weights drawn."""
    torch.manual_seed(seed)
    return specimen.make(loaded(specimen.style, changes))
