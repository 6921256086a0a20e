"""The examples as a person has them: scripts in a folder, which import each other."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

Run = Callable[..., str]


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def run() -> Run:
    """Return what runs an example with its arguments, and returns what it printed."""

    def run_example(name: str, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / name), *arguments],
            capture_output=True,
            text=True,
            check=False,
            # As in all tests: on a busy machine a second thread makes small tensors ten times slower.
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run_example
