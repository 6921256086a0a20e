"""Requests of `headwise check` that cannot be met, told before anything runs."""

import inspect

import pytest

from headwise.cli import check_request, main
from headwise.cli.check import check_command
from headwise.verbs.check import child


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "check_file", None)


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to check was named; give FILE.py:NAME (a function or module of yours), MODEL (a "),
        (
            ["minilm-l6", "--machine"],
            "--machine checks the backends of this machine, and 'minilm-l6' was named too",
        ),
        (
            ["minilm-l6", "--num-heads", "4"],
            "--num-heads is an option for checking a Python file, and a model is to be checked; leave it out",
        ),
        (
            ["--machine", "--text", "x"],
            "--text is an option for checking a model, and this machine is to be checked; leave it out",
        ),
        (
            ["f.py:g", "--text", "x"],
            "--text is an option for checking a model, and a Python file is to be checked; leave it out",
        ),
        (
            ["--machine", "--seed", "3"],
            "--seed is an option for checking a Python file or a model, and this machine is to be checked",
        ),
        (
            ["f.py:g", "--no-causal", "--causal-align", "upper_left"],
            "--no-causal and --causal-align upper_left contr",
        ),
        (
            ["f.py:g", "--rope-base", "3"],
            "--rope-base 3 needs --rope half_split or --rope interleaved beside it",
        ),
        (
            ["f.py:g", "--argument", "mask"],
            "--argument 'mask' is not of the form THEIRS=ROLE; write for example",
        ),
        (["f.py:g", "--argument", "=mask"], "--argument '=mask' is not of the form THEIRS=ROLE"),
        (
            ["f.py:g", "--argument", "m=mask", "--argument", "m=bias"],
            "--argument m was given twice, as mask and as",
        ),
        (["f.py:g", "--time-limit", "0"], "--time-limit 0 must be seconds above 0 and at most 86400 (a day)"),
        (["f.py:g", "--time-limit", "nan"], "--time-limit nan must be seconds above 0"),
        (["f.py:g", "--time-limit", "1e9"], "--time-limit 1e+09 must be seconds above 0"),
        (["f.py:g", "--axes", "qqq"], "Invalid value for '--axes'"),
        (["nonesuch"], "nonesuch"),
        (
            ["attention.txt:mha"],
            "What is to be checked in a file is named FILE.py:NAME, and the file ends in .py",
        ),
        ([""], "names no model"),
    ],
)
def test_wrong_requests_end_with_two_and_say_how_to_mend_them(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert message in shown.err


def test_every_option_belongs_to_a_form() -> None:
    parameters = set(inspect.signature(check_command).parameters) - {"context", "target", "as_json", "debug"}
    assert parameters == frozenset.union(*check_request.OPTIONS_OF.values())
