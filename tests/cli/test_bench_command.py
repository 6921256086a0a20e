import json
import subprocess
from collections.abc import Callable
from dataclasses import replace

import pytest

from headwise import ops
from headwise.cli import main
from headwise.verbs.bench import compute, works
from headwise.verbs.bench.result import Bench
from headwise.verbs.bench.works import WORKS, Work

Run = Callable[..., subprocess.CompletedProcess[str]]
TINY = Work("tiny", 1, 2, 2, 19, 19, 16, causal=True)


@pytest.fixture
def tiny_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two small works in place of the real ones, without what would have to be compiled for them."""
    monkeypatch.setattr(works, "WORKS", (TINY, replace(TINY, name="tiny-too", seq_len=1)))
    uncompiled = tuple(each for each in compute.BACKENDS if each.name != "flex_attention")
    monkeypatch.setattr(compute, "BACKENDS", uncompiled)


@pytest.mark.usefixtures("tiny_works")
def test_json_is_one_document_and_progress_goes_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--json", "--work", "tiny", "--threads", "1", "--repeat", "2"]) == 0
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    (work,) = document["works"]
    assert work["name"] == "tiny"
    assert document["threads"] == 1
    assert document["machine"]["versions"]["torch"]
    assert work["timings"]["headwise"]["repeats"] == 2
    assert set(work["timings"]) == {"headwise", "torch_sdpa", "torch_math", "onnxruntime", "jax"}
    assert shown.err == "  0% what the machine can do\n  0% tiny\n100% done\n"


@pytest.mark.usefixtures("tiny_works")
def test_a_person_gets_tables_of_all_works(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--threads", "1", "--repeat", "1"]) == 0
    out = capsys.readouterr().out
    assert "Milliseconds a call" in out
    assert "\ntiny " in out
    assert "\ntiny-too " in out
    assert "\x1b" not in out


@pytest.mark.usefixtures("tiny_works")
def test_a_terminal_gets_a_bar_that_goes_when_it_is_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    assert main(["bench", "--json", "--threads", "1", "--repeat", "1"]) == 0
    shown = capsys.readouterr()
    json.loads(shown.out)
    assert " 50%" in shown.err
    assert "tiny-too" in shown.err
    assert shown.err.endswith("\x1b[2K")  # the line is cleared


@pytest.mark.usefixtures("tiny_works")
def test_headwise_found_wrong_ends_with_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = ops.attention
    monkeypatch.setattr(ops, "attention", lambda *tensors, **named: right(*tensors, **named) + 0.01)
    assert main(["bench", "--work", "tiny", "--json", "--threads", "1", "--repeat", "1"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["is_right"] is False
    assert document["works"][0]["ratio"] is None


def test_every_option_reaches_the_bench(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {}

    def bench(**named: object) -> Bench:
        given.update(named)
        raise KeyboardInterrupt

    monkeypatch.setattr(compute, "bench", bench)
    options = ["--work", "window", "--work", "decode-4k", "--threads", "3", "--repeat", "7"]
    assert main(["bench", *options]) == 130
    del given["notify"]
    assert given == {"works": ["window", "decode-4k"], "threads": 3, "repeat": 7}
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--work", "decode"],
            f"work 'decode' is unknown; there are {', '.join(work.name for work in WORKS)}",
        ),
        (["--threads", "0"], "Invalid value for '--threads'"),
        (["--threads", "100000"], "threads=100000 is more than the"),
        (["--repeat", "0"], "Invalid value for '--repeat'"),
        (["surplus"], "unexpected extra argument"),
    ],
)
def test_wrong_requests_end_with_two_and_one_line_of_reason(
    run: Run, options: list[str], message: str
) -> None:
    done = run("bench", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_work_is_refused_before_torch_is_loaded(run_python: Run) -> None:
    code = "import sys\nfrom headwise.cli import main\nassert main(['bench', '--work', 'x']) == 2\n"
    done = run_python(f"{code}assert not {{'torch', 'numpy'}} & set(sys.modules)")
    assert done.returncode == 0, done.stderr


def test_help_lists_the_works(run: Run) -> None:
    told = "".join(run("bench", "--help").stdout.split())  # lines break at hyphens too
    assert all(work.name in told for work in WORKS)
