"""What was found on this machine, once for all tests, and a place where children find what tests plant."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwise.verbs.check_machine.backends import BACKENDS
from headwise.verbs.check_machine.cases import CASES
from headwise.verbs.check_machine.compute import check_backends
from headwise.verbs.check_machine.result import MachineCheck

from .fewer_cases import TELLING

# These compile for each case, for seconds; what they are asked here has each kind of finding.
SLOW = ("flex_attention", "jax")


@pytest.fixture
def planted_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children, and this process, find `planted_backends` by its name."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.fixture(scope="session")
def quick_found() -> MachineCheck:
    """What all cases say of every backend that does not compile."""
    return check_backends([backend for backend in BACKENDS if backend.name not in SLOW], CASES)


@pytest.fixture(scope="session")
def slow_found() -> MachineCheck:
    """What a few cases say of the others."""
    return check_backends([backend for backend in BACKENDS if backend.name in SLOW], TELLING)
