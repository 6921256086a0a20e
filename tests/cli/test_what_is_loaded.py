import json
import subprocess
from collections.abc import Callable

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
HEAVY = {"torch", "transformers", "numpy"}


def loaded_by(run_python: Run, code: str) -> set[str]:
    done = run_python(f"{code}\nimport sys, json\njson.dump(sorted(sys.modules), sys.stderr)")
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr)) & HEAVY


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--help"], set()),
        (["plan", "--num-heads", "8", "--d-model", "512"], set()),
        (["plan", "--num-heads", "8", "--d-model", "512", "--json"], set()),
        # NumPy must be seen here, or the probe sees nothing.
        (["explain", "two-heads"], {"numpy"}),
        (["explain", "two-heads", "--json"], {"numpy"}),
    ],
)
def test_light_commands_load_no_torch(run_python: Run, arguments: list[str], expected: set[str]) -> None:
    code = f"from headwise.cli import main\nassert main({arguments!r}) == 0"
    assert loaded_by(run_python, code) == expected


@pytest.mark.parametrize("name", ["HeadLayout", "plan"])
def test_light_names_of_the_package_load_nothing_heavy(run_python: Run, name: str) -> None:
    assert loaded_by(run_python, f"import headwise\nheadwise.{name}") == set()


def test_explain_from_the_package_loads_no_torch(run_python: Run) -> None:
    code = "import headwise\nheadwise.explain_two_heads()"
    assert loaded_by(run_python, code) == {"numpy"}
