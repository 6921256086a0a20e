import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

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
