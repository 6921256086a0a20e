import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwise.cli.app import app
from headwise.models.opening.opened_model import OpenedModel
from headwise.verbs.explain import explain_two_heads
from headwise.verbs.explain.bank import explain_bank
from headwise.verbs.explain.bank.render_json import to_json as bank_to_json
from headwise.verbs.explain.render_json import to_json
from headwise.verbs.explain.render_page import build_page
from headwise.verbs.explain_model import explain_model
from headwise.verbs.explain_model.render_json import to_json as model_to_json

Run = Callable[..., subprocess.CompletedProcess[str]]


def to_four_decimals(matrix: dict[str, list[list[float]]]) -> list[list[float]]:
    return [[round(number, 4) for number in row] for row in matrix["values"]]


def test_the_published_numbers_come_out_of_the_command(run: Run) -> None:
    done = run("explain", "two-heads", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    first, second = document["heads"]
    assert to_four_decimals(first["weights"]) == [
        [0.4720, 0.2676, 0.2603],
        [0.2635, 0.3618, 0.3746],
        [0.4565, 0.2735, 0.2700],
    ]
    assert to_four_decimals(second["weights"]) == [
        [0.3627, 0.1943, 0.4430],
        [0.3326, 0.4491, 0.2182],
        [0.3124, 0.3025, 0.3851],
    ]
    assert to_four_decimals(document["concatenated"]) == [
        [-0.0194, -0.8694, -0.9616, -0.3999],
        [0.3008, -0.8794, -0.8637, -0.4963],
        [0.0033, -0.8711, -0.9156, -0.4626],
    ]
    assert to_four_decimals(document["output"]) == [
        [-1.0682, 0.1421, -0.3248, 1.0458],
        [-1.4414, -0.0608, -0.1886, 1.0093],
        [-1.1078, 0.0533, -0.3220, 0.9565],
    ]


def test_every_option_reaches_the_example() -> None:
    sizes = {"d_model": 6, "num_heads": 4, "num_kv_heads": 2, "head_dim": 5, "seed": 11}
    given = [part for name, size in sizes.items() for part in (f"--{name.replace('_', '-')}", str(size))]
    tokens = ["--tokens", "the, old", "--tokens", "cat"]
    done = CliRunner().invoke(app, ["explain", "two-heads", *given, *tokens, "--causal", "--json"])
    assert done.exit_code == 0, done.output
    expected = explain_two_heads(tokens=["the", "old", "cat"], causal=True, **sizes)
    assert json.loads(done.stdout) == to_json(expected)


def test_the_defaults_of_the_command_are_those_of_the_function() -> None:
    done = CliRunner().invoke(app, ["explain", "two-heads", "--json"])
    assert json.loads(done.stdout) == to_json(explain_two_heads())


def test_the_bank_and_its_seed() -> None:
    done = CliRunner().invoke(app, ["explain", "bank", "--seed", "5", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == bank_to_json(explain_bank(seed=5))
    told = CliRunner().invoke(app, ["explain", "bank"])
    assert told.exit_code == 0, told.output
    assert told.stdout.startswith('One head or two: "The bank raised rates"\n')


def test_a_model_is_traced_and_every_option_reaches_it(minilm: OpenedModel) -> None:
    asked = ["minilm-l6", "--text", "The bank raised rates", "--layer", "1", "--head", "4", "--query", "-3"]
    done = CliRunner().invoke(app, ["explain", *asked, "--json"])
    assert done.exit_code == 0, done.output
    expected = explain_model(minilm, "The bank raised rates", layer=1, head=4, query=3)
    assert json.loads(done.stdout) == model_to_json(expected)
    told = CliRunner().invoke(app, ["explain", *asked])
    assert told.stdout.startswith("minilm-l6, layer 1, head 4: one call, step by step\n")


def test_the_page_is_written_beside_the_story_or_the_document(tmp_path: Path) -> None:
    page = tmp_path / "two.html"
    told = CliRunner().invoke(app, ["explain", "two-heads", "--out", str(page), "--num-heads", "4"])
    assert told.exit_code == 0, told.output
    assert told.stdout.endswith(f"Page: {page}\n") or "".join(told.stdout.split("\n")).endswith(
        f"Page: {page}"
    )
    assert page.read_text("utf-8") == build_page(explain_two_heads(num_heads=4))
    done = CliRunner().invoke(app, ["explain", "two-heads", "--out", str(page), "--json"])
    assert json.loads(done.stdout) == to_json(explain_two_heads(), page=page)
    assert page.read_text("utf-8") == build_page(explain_two_heads())


def test_a_person_gets_a_story_without_colour_codes_in_a_pipe(run: Run) -> None:
    done = run("explain", "two-heads", "--tokens", "\x1b[31mred,[bold]b[/bold]")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Two heads, step by step\n")
    assert "\x1b" not in done.stdout
    assert r"\x1b[31mred" in done.stdout
    assert "[bold]b[/bo…" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bonk"], "error: there is no model 'bonk'; pass a name of the catalogue"),
        (
            ["minilm-l6", "--text", "x"],
            "error: --layer and --head are missing; a model is explained on a text, one head of one layer: ",
        ),
        (["minilm-l6", "--layer", "1", "--head", "0"], "error: --text is missing; a model is explained"),
        (["minilm-l6", "--text", " ", "--layer", "1", "--head", "0"], "error: text is only whitespace"),
        (["minilm-l6", "--causal"], "error: --causal is an option of two-heads, and a model was asked for"),
        (
            ["two-heads", "--query", "1"],
            "error: --query is an option of a model, and two-heads was asked for",
        ),
        (
            ["bank", "--tokens", "cat"],
            "error: --tokens is an option of two-heads, and bank was asked for; leave it out\n",
        ),
        (["bank", "--num-kv-heads", "2", "--causal"], "error: --causal is an option of two-heads"),
        (["bank", "--seed", "-1"], "error: seed=-1 is no seed"),
        (["two-heads", "--tokens", "cat,,mat"], "error: token 1 is ''; each of the tokens is a string"),
        (["two-heads", "--num-heads", "3"], "error: num_heads=3 does not divide d_model=4"),
        (["two-heads", "--seed", "-1"], "error: seed=-1 is no seed"),
        (["bank", "--out", "x.html"], "error: --out is an option of two-heads, and bank was asked for"),
        (
            ["two-heads", "--out", "."],
            "error: --out . is a folder; name the file to write, such as two-heads.html\n",
        ),
        (
            ["two-heads", "--out", "/dev/null"],
            "error: --out /dev/null is not a regular file; name the file to write, such as two-heads.html\n",
        ),
        (["two-heads", "--out", "x.html", "--tokens", ",".join("a" * 64)], "error: a page of this example"),
        ([], "error: Missing argument 'SUBJECT'"),
        (["\x1b[2J"], r"error: there is no model '\x1b[2J'"),
    ],
)
def test_wrong_requests_end_with_two_and_a_reason(run: Run, arguments: list[str], message: str) -> None:
    done = run("explain", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(message)
    assert "Traceback" not in done.stderr
