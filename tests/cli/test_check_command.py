import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from headwise.cli import check_options, main
from headwise.verbs.check import CheckResult, check, child, expected
from headwise.verbs.check.faults import FAULTS
from headwise.verbs.check.render_json import to_json
from headwise.verbs.check_machine import MachineCheck
from headwise.verbs.check_machine.render_json import to_json as machine_to_json
from headwise.verbs.check_machine.result import Examined
from headwise.verbs.check_machine.result import Finding as MachineFinding
from headwise.verbs.check_model import Finding as ModelFinding
from headwise.verbs.check_model import ModelCheck, check_model
from headwise.verbs.check_model.render_json import to_json as model_to_json
from headwise.verbs.machine import this_machine

Run = Callable[..., subprocess.CompletedProcess[str]]

UNSCALED = """
import sys
import torch
print("noise")
sys.stderr.write("noise\\n")
def attend(query, key, value):
    return torch.softmax(query @ key.mT, dim=-1) @ value
def right(query, key, value):
    return torch.softmax(query @ key.mT * query.shape[-1] ** -0.5, dim=-1) @ value
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the child was asked; nothing is run."""
    calls: list[dict[str, Any]] = []

    def check_file(path: Path, name: str, **given: Any) -> CheckResult:
        calls.append({"path": path, "name": name, **given})
        raise KeyboardInterrupt

    monkeypatch.setattr(child, "check_file", check_file)
    return calls


def test_a_wrong_one_ends_with_one_and_says_why_without_torch_here(run_python: Run, tmp_path: Path) -> None:
    (tmp_path / "attention.py").write_text(UNSCALED)
    arguments = ["check", "attention.py:attend", "--num-heads", "4", "--head-dim", "8"]
    done = run_python(
        f"import sys\nfrom headwise.cli import main\ncode = main({arguments!r})\n"
        "assert not {'torch', 'numpy'} & set(sys.modules)\nsys.exit(code)"
    )
    assert (done.returncode, done.stderr) == (1, "checking attention.py:attend\n")
    (fault,) = (fault for fault in FAULTS if fault.name == "scale-missing")
    assert done.stdout.startswith(f"attend is wrong: {fault.what}\n")
    assert f"\nscale-missing\n  Mend: {fault.mend}\n" in done.stdout
    assert "noise" not in done.stdout


def test_json_of_a_right_one_is_that_of_the_function(run: Run, tmp_path: Path) -> None:
    (tmp_path / "attention.py").write_text(UNSCALED)
    done = run("check", "attention.py:right", "--num-heads", "4", "--head-dim", "8", "--seed", "5", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    namespace: dict[str, Any] = {}
    exec(UNSCALED, namespace)  # noqa: S102 - the text above
    found = to_json(check(namespace["right"], num_heads=4, head_dim=8, seed=5))
    # Of torch's threads there are as many as it finds, and sums differ by that in their last digits.
    for each in (document, found, *document["probes"], *found["probes"]):
        each.pop("error")
    assert document == found


def test_every_option_reaches_the_check(asked: list[dict[str, Any]]) -> None:
    sizes = {"num_heads": 6, "num_kv_heads": 2, "head_dim": 7, "value_head_dim": 5, "d_model": 42}
    others = {"window": 3, "softcap": 2.5, "scale": 0.5, "axes": "bqhd", "mask_means": "ignore", "seed": 9}
    given = [
        part
        for name, value in (sizes | others).items()
        for part in (f"--{name.replace('_', '-')}", str(value))
    ]
    meanings = ["attn_bias=bias", " kpm = padding", "layer=3", "eps=1e-3", "fast=true", "x=null", 'y="3"']
    arguments = [part for meaning in meanings for part in ("--argument", meaning)]
    rope = ["--rope", "interleaved", "--rope-base", "500"]
    limits = ["--time-limit", "7.5", "--causal-align", "upper_left"]
    assert main(["check", "a/b.py:Some", *given, *arguments, *rope, *limits]) == 130
    assert asked == [
        {
            "path": Path("a/b.py"),
            "name": "Some",
            "seconds": 7.5,
            "options": {
                **sizes,
                **others,
                "causal": "upper_left",
                "rope": {"pairing": "interleaved", "base": 500.0},
                "arguments": {
                    "attn_bias": "bias",
                    "kpm": "padding",
                    "y": '"3"',
                    "layer": 3,
                    "eps": 1e-3,
                    "fast": True,
                    "x": None,
                },
            },
        }
    ]


def test_what_is_left_out_is_left_to_the_check(asked: list[dict[str, Any]]) -> None:
    assert main(["check", "b.py:Some"]) == 130
    assert asked == [{"path": Path("b.py"), "name": "Some", "seconds": 120.0, "options": {"seed": 0}}]


@pytest.mark.parametrize(
    ("options", "causal"),
    [
        (["--causal"], True),
        (["--no-causal"], False),
        (["--causal-align", "lower_right"], "lower_right"),
        (["--causal", "--causal-align", "upper_left"], "upper_left"),
    ],
)
def test_causal_is_declared(asked: list[dict[str, Any]], options: list[str], causal: object) -> None:
    assert main(["check", "b.py:Some", *options]) == 130
    assert asked[0]["options"]["causal"] == causal


def test_a_rope_without_a_base_has_the_usual_one(asked: list[dict[str, Any]]) -> None:
    assert main(["check", "b.py:Some", "--rope", "half_split"]) == 130
    assert asked[0]["options"]["rope"] == {"pairing": "half_split"}


def test_the_words_of_the_options_are_those_of_the_function() -> None:
    assert get_args(check_options.Axes) == get_args(expected.Axes)
    assert get_args(check_options.MaskMeans) == get_args(expected.MaskMeans)
    assert get_args(check_options.Alignment) == get_args(expected.Causal)


def test_a_model_is_checked_and_every_option_reaches_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}

    def checked(model: str, **named: Any) -> ModelCheck:
        given.update(named, model=model)
        return check_model(model, **named)

    monkeypatch.setattr("headwise.verbs.check_model.check_model", checked)
    asked = ["check", "minilm-l6", "--text", "The bank raised rates", "--seed", "3"]
    assert main([*asked, "--json"]) == 0
    shown = capsys.readouterr()
    del given["notify"]
    assert given == {"model": "minilm-l6", "text": "The bank raised rates", "seed": 3}
    found = check_model("minilm-l6", text="The bank raised rates", seed=3)
    assert json.loads(shown.out) == model_to_json(found)
    assert "comparing the heads of minilm-l6" in shown.err

    finding = ModelFinding("dead-output", 0, "encoder.layer.0", "writes nothing")
    monkeypatch.setattr(
        "headwise.verbs.check_model.check_model", lambda *_, **__: replace(found, findings=(finding,))
    )
    assert main(asked) == 1
    assert "dead-output" in capsys.readouterr().out


@pytest.mark.parametrize(("verdict", "code"), [("wrong", 1), ("differs", 0), ("right", 0)])
def test_the_machine_is_checked_with_progress_elsewhere(
    verdict: Any, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    finding = MachineFinding("torch_math", "causal", "a case", "", verdict, line="print(1)")
    examined = Examined("torch_math", "math", (finding,))
    found = MachineCheck(this_machine(), (examined,), {"causal": 1}, 1.5)

    def checked(*, notify: Callable[[str, float], None]) -> MachineCheck:
        for share in (0.0, 0.03, 0.5, 0.5, 0.52, 1.0):
            notify("math: causal", share)
        return found

    monkeypatch.setattr("headwise.verbs.check_machine.check_machine", checked)
    assert main(["check", "--machine", "--json"]) == code
    shown = capsys.readouterr()
    assert json.loads(shown.out) == machine_to_json(found)
    assert shown.err == "  0% math: causal\n 50% math: causal\n100% math: causal\n"
    assert main(["check", "--machine"]) == code
    assert "causal" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("print('x' * 10**6)\ndef attend(query, key, value): return 3", "attend returned int"),
        (
            "import sys; sys.exit(4)",
            "attention.py ends the program while it is imported (line 1 of attention.py)",
        ),
        (
            "def attend(query, key, value): raise ValueError('\\x1b[31m red')",
            r"attend raised ValueError: \x1b[31m red at ",
        ),
    ],
)
def test_a_file_that_cannot_be_checked_ends_with_two_and_a_sentence(
    run: Run, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "attention.py").write_text(text)
    sizes = ["--num-heads", "4", "--head-dim", "8"]
    done = run("check", "attention.py:attend", *sizes, "--json")
    assert (done.returncode, done.stdout) == (2, "")
    said = done.stderr.removeprefix("checking attention.py:attend\n")
    assert said.startswith("error: ")
    assert message in said
    assert said.count("\n") == 1
    assert "Traceback" not in said
    assert "\x1b" not in said


def test_help_is_told_before_torch_is_loaded(run_python: Run) -> None:
    code = (
        "from headwise.cli import main\nassert main(['check', '--help']) == 0\nassert main(['check']) == 2\n"
    )
    done = run_python(f"{code}import sys\nassert not {{'torch', 'numpy'}} & set(sys.modules)")
    assert done.returncode == 0, done.stderr
    assert re.search(r"FILE\.py:NAME", done.stdout)
