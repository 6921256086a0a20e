import json
import subprocess
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from headwise.cli.app import app

Run = Callable[..., subprocess.CompletedProcess[str]]
PUBLISHED = ["plan", "--layers", "32", "--num-heads", "32", "--head-dim", "128", "--context", "2048"]


def test_weights_and_products_of_the_published_example(run: Run) -> None:
    done = run("plan", "--d-model", "512", "--num-heads", "8", "--context", "128", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert document["parameters"]["total"]["value"] == 1_048_576
    assert document["parameters"]["one_layer"]["arithmetic"] == "4 x 262,144"
    assert document["query_key_products"]["dense"]["value"] == 8_388_608


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], 1_073_741_824),
        (["--num-kv-heads", "8"], 268_435_456),
        (["--num-kv-heads", "1"], 33_554_432),
    ],
)
def test_cache_bytes_of_the_published_example(run: Run, options: list[str], expected: int) -> None:
    done = run(*PUBLISHED, "--dtype", "float16", "--json", *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["kv_cache"]["total"]["value"] == expected


def test_a_head_count_that_does_not_divide_is_refused(run: Run) -> None:
    done = run("plan", "--d-model", "512", "--num-heads", "7")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: num_heads=7 does not divide d_model=512; pass head_dim explicitly, "
        "or use 4 (head_dim 128) or 8 (head_dim 64)\n"
    )


def test_every_option_reaches_the_plan() -> None:
    options = {
        "--num-heads": 6,
        "--d-model": 130,
        "--num-kv-heads": 2,
        "--head-dim": 7,
        "--value-head-dim": 11,
        "--layers": 3,
        "--context": 1301,
        "--batch": 5,
        "--dtype": "float32",
    }
    given = [str(part) for option in options.items() for part in option]
    done = CliRunner().invoke(app, ["plan", *given, "--bias", "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    found = document["layout"] | document["settings"]
    for option, value in options.items():
        assert found[option.removeprefix("--").replace("-", "_")] == value
    assert found["bias"] is True
    assert found["derived"] == []


def test_a_person_gets_a_table_without_colour_codes_in_a_pipe(run: Run) -> None:
    done = run("plan", "--d-model", "512", "--num-heads", "8", "--context", "128")
    assert (done.returncode, done.stderr) == (0, "")
    assert "1,048,576" in done.stdout
    assert "8,388,608" in done.stdout
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--d-model", "512"], "Missing option '--num-heads'"),
        (["--num-heads", "8", "--d-model", "many"], "Invalid value for '--d-model'"),
        (
            ["--num-heads", "8", "--d-model", "512", "--dtype", "fp16"],
            "dtype='fp16' is not known; use float64",
        ),
        (["--num-heads", "0", "--d-model", "512"], "num_heads=0 must be at least 1"),
        (["--num-heads", "8", "--d-model", "9" * 30], "is too large; the largest allowed is 2147483647"),
        (["--num-heads", "8", "--d-model", "9" * 5000], "Invalid value for '--d-model'"),
        (["--num-heads", "8", "--d-model", "512", "surplus"], "unexpected extra argument"),
    ],
)
def test_wrong_requests_end_with_two_and_one_line_of_reason(
    run: Run, options: list[str], message: str
) -> None:
    done = run("plan", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
