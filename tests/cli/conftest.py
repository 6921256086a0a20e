import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from .stand import Stand

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the installed `headwise` in an empty folder, as a user does."""
    script = Path(sys.executable).with_name("headwise")

    def run_script(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [script, *arguments], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False
        )

    return run_script


@pytest.fixture
def run_python(tmp_path: Path) -> Run:
    """Run a piece of Python in a fresh process."""

    def run_code(code: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=60,
            check=False,
        )

    return run_code


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stand:
    stand = Stand()
    offered = {
        "": ("view", "Comparison"),
        ".render_page": ("write_page",),
        ".render_json": ("to_json",),
        ".render_text": ("print_view",),
    }
    for ending, names in offered.items():
        module = ModuleType(f"headwise.verbs.view{ending}")
        for name in names:
            setattr(module, name, getattr(stand, name))
        monkeypatch.setitem(sys.modules, module.__name__, module)
    opening = ModuleType("headwise.models.opening.opened_model")
    monkeypatch.setattr(opening, "open_model", stand.open_model, raising=False)
    monkeypatch.setitem(sys.modules, opening.__name__, opening)
    monkeypatch.chdir(tmp_path)
    return stand
