import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import headwise
from headwise.cli import frame, main
from headwise.cli.app import app
from headwise.errors import MismatchError, ModelError

Run = Callable[..., subprocess.CompletedProcess[str]]
PLAN = ["plan", "--num-heads", "8", "--d-model", "512"]


def raising(error: BaseException) -> Callable[..., None]:
    def raise_it(**_: object) -> None:
        raise error

    return raise_it


def test_without_arguments_it_shows_the_verbs(run: Run) -> None:
    done = run()
    assert (done.returncode, done.stderr) == (0, "")
    for verb in ("view", "explain", "plan", "bench"):
        assert f"\n  {verb} " in done.stdout


def test_only_verbs_that_exist_are_commands() -> None:
    assert sorted(command.name or "" for command in app.registered_commands) == [
        "bench",
        "check",
        "explain",
        "plan",
        "view",
    ]


def test_version_and_module_form(run: Run, run_python: Run) -> None:
    assert run("--version").stdout == f"headwise {headwise.__version__}\n"
    as_module = "sys.argv = ['headwise', '--version']; runpy.run_module('headwise', run_name='__main__')"
    assert run_python(f"import runpy, sys; {as_module}").stdout == f"headwise {headwise.__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "--help"], ["explain", "-h"], ["view", "--help"]])
def test_help_is_no_error(run: Run, arguments: list[str]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: headwise" in done.stdout


def test_unknown_commands_and_options_are_refused_with_the_way_to_help(run: Run) -> None:
    done = run("conjure")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: No such command 'conjure'.\nTry 'headwise --help'.\n"
    done = run("plan", "--nonsense\x1b[2J")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: No such option: --nonsense")
    assert done.stderr.endswith("Try 'headwise plan --help'.\n")
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize("error", [ModelError("no such model"), MismatchError("too far apart")])
def test_errors_of_headwise_are_one_line_and_two(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("headwise.cli.plan.plan", raising(error))
    assert main(PLAN) == 2
    assert capsys.readouterr() == ("", f"error: {error}\n")


def test_text_in_errors_cannot_steer_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("headwise.cli.plan.plan", raising(ModelError("a\x1b[31m\u202eb \udce9\nsecond line")))
    assert main(PLAN) == 2
    assert capsys.readouterr().err == "error: a\\x1b[31m\\u202eb \\udce9\nsecond line\n"


class PanicException(BaseException):
    """As Rust extensions raise it: not an Exception."""


@pytest.mark.parametrize(
    "error", [KeyError("gone"), PanicException("unwrap on None"), EOFError("cut"), MemoryError()]
)
def test_faults_of_headwise_are_told_from_wrong_requests(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("headwise.cli.plan.plan", raising(error))
    assert main(PLAN) == 70
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == (
        f"error: headwise failed: {type(error).__name__}: {error}\n"
        "This is a fault of headwise, not of the request; run it again with --debug for the traceback.\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [["--debug", *PLAN], [*PLAN, "--debug"], ["plan", "--debug", "--num-heads", "8", "--d-model", "512"]],
)
@pytest.mark.parametrize(("error", "code"), [(ModelError("no such model"), 2), (KeyError("gone"), 70)])
def test_debug_shows_the_traceback_wherever_it_stands(
    arguments: list[str],
    error: Exception,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("headwise.cli.plan.plan", raising(error))
    assert main(arguments) == code
    shown = capsys.readouterr().err
    assert shown.startswith("Traceback")
    assert "in raise_it" in shown
    assert "\nerror: " in shown


def test_debug_counts_although_an_option_before_it_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--num-heads", "many", "--debug"]) == 2
    assert capsys.readouterr().err.startswith("Traceback")


def test_debug_is_not_remembered_from_one_run_to_the_next(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("headwise.cli.plan.plan", raising(ModelError("no such model")))
    main([*PLAN, "--debug"])
    capsys.readouterr()
    main(PLAN)
    assert "Traceback" not in capsys.readouterr().err


def test_commands_work_without_the_frame_around_them() -> None:
    assert CliRunner().invoke(app, [*PLAN, "--debug"]).exit_code == 0


def test_an_exit_asked_for_by_a_library_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwise.cli.plan.plan", raising(SystemExit(9)))
    with pytest.raises(SystemExit, match="9"):
        main(PLAN)


def test_an_interrupt_ends_with_130_and_no_traceback(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time, headwise.cli.plan\n"
        # Tests started in the background of a script inherit that interrupts are ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def wait(**_):\n    print('ready', flush=True)\n    time.sleep(60)\n"
        "headwise.cli.plan.plan = wait\n"
        f"sys.exit(headwise.cli.main({PLAN!r}))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, "interrupted\n")


@pytest.mark.parametrize(
    "arguments",
    [PLAN, [*PLAN, "--json"], ["explain", "two-heads", "--json"], ["explain", "two-heads"], ["--help"]],
)
def test_a_closed_pipe_is_quiet(arguments: list[str], tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    script = Path(sys.executable).with_name("headwise")
    done = subprocess.run(
        [script, *arguments], stdout=writing, stderr=subprocess.PIPE, cwd=tmp_path, timeout=60, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_broken_pipe_elsewhere_is_a_fault(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("headwise.cli.plan.plan", raising(BrokenPipeError(32, "Broken pipe")))
    assert main(PLAN) == 70
    assert "BrokenPipeError" in capfd.readouterr().err


@pytest.mark.parametrize("arguments", [PLAN, [*PLAN, "--json"]])
def test_a_full_disk_is_named(arguments: list[str], tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("headwise")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [script, *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (
        74,
        "error: No space left on device; make room and run it again\n",
    )


@pytest.mark.parametrize(("redirection", "code"), [(">&-", 0), ("2>&-", 0), (">&- 2>&-", 0)])
def test_closed_streams_are_no_fault(redirection: str, code: int, tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("headwise")
    command = f'"{script}" plan --num-heads 8 --d-model 512 {redirection}'
    done = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, cwd=tmp_path, timeout=60, check=False
    )
    assert done.returncode == code
    assert b"Traceback" not in done.stderr


def test_an_error_without_a_place_to_tell_it_still_has_its_code(tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("headwise")
    for redirection in ("2>&-", "2>/dev/full"):
        command = f'"{script}" plan --num-heads 7 --d-model 512 {redirection}'
        done = subprocess.run(["/bin/sh", "-c", command], cwd=tmp_path, timeout=60, check=False)
        assert done.returncode == 2


def test_characters_the_terminal_lacks_do_not_stop_the_output(tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("headwise")
    done = subprocess.run(
        [script, "explain", "two-heads", "--tokens", "é,日本", "--causal"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\u65e5\\u672c" in done.stdout


def test_exit_codes_are_the_documented_ones() -> None:
    assert {code.name: int(code) for code in frame.ExitCode} == {
        "DONE": 0,
        "FOUND_WRONG": 1,
        "BAD_REQUEST": 2,
        "FAULT": 70,
        "DISK_FULL": 74,
        "INTERRUPTED": 130,
        "CLOSED_PIPE": 141,
    }
