"""A file checked in a process of its own: the same result as here, and a sentence for whatever goes wrong."""

import json
import re
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headwise
from headwise.errors import ArgumentError, SubjectError, UnsupportedError
from headwise.verbs.check import check, child
from headwise.verbs.check.child import check_file
from headwise.verbs.check.contained import Heard
from headwise.verbs.check.render_json import to_json
from headwise.verbs.check.wire import written

from .made_results import UNKNOWN, WRONG

UNSCALED = """
import sys
import torch

print("noise on standard output")
sys.stderr.write("noise on standard error\\n")


def attend(query, key, value):
    print("more noise")
    return torch.softmax(query @ key.mT, dim=-1) @ value
"""
SIZES = {"num_heads": 4, "head_dim": 8}


def attend_file(folder: Path, text: str) -> Path:
    file = folder / "attention.py"
    file.write_text(text)
    return file


def test_a_result_is_the_same_as_that_of_a_direct_call(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = attend_file(tmp_path, UNSCALED)
    found = check_file(file, "attend", options=SIZES)
    assert capfd.readouterr() == ("", "")
    assert found.fault_names == ("scale-missing",)
    namespace: dict[str, Any] = {}
    exec(compile(UNSCALED, str(file), "exec"), namespace)  # noqa: S102 - the text above
    assert found == check(namespace["attend"], **SIZES)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == [file]  # nothing is left beside the file
    # In the document conventions go by their names.
    assert len(to_json(found)["conventions"]) == len(found.conventions) > 5


def test_what_json_cannot_carry_is_made_in_the_child(tmp_path: Path) -> None:
    # If the base did not get there, the first would be wrong and the second right. The fault of the second is
    # one of the catalogue, so that no pair of faults is looked for.
    rotated = """
import torch, headwise
def attend(query, key, value):
    query, key = headwise.Rope(pairing="interleaved", base={base}).rotate(query, key)
    return torch.softmax(query @ key.mT * query.shape[-1] ** -0.5, dim=-1) @ value
"""
    options = {**SIZES, "rope": {"pairing": "interleaved", "base": 50.0}}
    assert check_file(attend_file(tmp_path, rotated.format(base=50.0)), "attend", options=options).is_right
    found = check_file(attend_file(tmp_path, rotated.format(base=10_000.0)), "attend", options=options)
    assert found.fault_names == ("rotary-base-wrong",)


def test_what_check_refuses_comes_back_in_its_kind(tmp_path: Path) -> None:
    file = attend_file(tmp_path, "def attend(query, key, value): raise RuntimeError('no \\x1b[31m')")
    with pytest.raises(SubjectError, match=r"attend raised RuntimeError: no .*attention\.py:1"):
        check_file(file, "attend", options=SIZES)
    with pytest.raises(ArgumentError, match="num_kv_heads=3 does not divide num_heads=4"):
        check_file(file, "attend", options={"num_heads": 4, "num_kv_heads": 3})


@pytest.mark.parametrize(
    ("body", "seconds", "message"),
    [
        ("while True: pass", 6, r"was stopped after 6 seconds in line 2 \(attend\); it may never end, or"),
        (
            "import ctypes; ctypes.string_at(0)",
            100,
            r"ended its process by SIGSEGV \(a segmentation fault\) in",
        ),
        ("import os; os._exit(9)", 100, "ended its process with exit code 9 before there was a result"),
    ],
)
def test_a_process_that_ends_badly_is_told_in_a_sentence(
    tmp_path: Path, body: str, seconds: float, message: str
) -> None:
    file = attend_file(tmp_path, f"def attend(query, key, value):\n    {body}\n")
    with pytest.raises(ArgumentError, match=f"{re.escape(str(file))} {message}"):
        check_file(file, "attend", options=SIZES, seconds=seconds)


def test_a_file_that_forks_answers_once(tmp_path: Path) -> None:
    # The copy is first, and would be taken for wrong if it answered.
    forks = "import os\nis_copy = not (pid := os.fork())\nif pid: os.waitpid(pid, 0)"
    body = "return query * 3 if is_copy else torch.softmax(query @ key.mT / 8**0.5, dim=-1) @ value"
    file = attend_file(tmp_path, f"import torch\n{forks}\ndef attend(query, key, value):\n    {body}\n")
    assert check_file(file, "attend", options=SIZES).is_right


def test_an_exit_while_it_is_asked_is_a_refusal(tmp_path: Path) -> None:
    file = attend_file(tmp_path, "import sys\ndef attend(query, key, value): sys.exit(3)")
    place = r"at .*attention\.py:2 \(def attend"
    with pytest.raises(SubjectError, match=f"^attend raised SystemExit: 3 {place}"):
        check_file(file, "attend", options=SIZES)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nonesuch.py", "nonesuch.py does not exist; name a"),
        (".", "is no file; name a"),
        ("x" * 5000 + ".py", "xx.py cannot be looked at: File name too long; name a"),
    ],
)
def test_a_file_that_is_not_there_is_refused_before_anything_runs(
    path: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "run_contained", None)
    mend = re.escape("Python file and what to check in it, as in FILE.py:NAME")
    with pytest.raises(ArgumentError, match=f"{message} {mend}"):
        check_file(Path(path), "attend", options={})


def heard(*answers: Mapping[str, Any], traces: tuple[str, ...] = (), printed: bytes = b"") -> Heard:
    return Heard(answers=[{"group": 5}, *map(dict, answers)], traces=list(traces), printed=printed)


STARTED = {"started": True}
TRACE = ("Fatal Python error: Aborted", 'File "/lib/torch.py", line 3 in mm', 'File "{file}", line 7 in f')


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (heard(STARTED, {"stopped": "time"}), "was stopped after 120 seconds; it may never end"),
        (heard(STARTED, {"stopped": "time"}, traces=TRACE), "was stopped after 120 seconds in line 7 (f)"),
        (
            heard(STARTED, {"stopped": "memory"}, traces=TRACE),
            "was stopped as it took more than 8.00 GiB of memory in line 7 (f)",
        ),
        (heard(STARTED, {"ended": -signal.SIGKILL}), "ended its process by SIGKILL, as when memory runs out"),
        (heard(STARTED, {"ended": -signal.SIGBUS}), "ended its process by SIGBUS; the check needs"),
        (heard(STARTED, {"ended": -99}), "ended its process by signal 99; the check needs"),
        (
            heard(STARTED, {"ended": 0}, printed=b"one\n two \xff\n\n"),
            "ended its process with exit code 0 before there was a result (the last it printed: two \ufffd)",
        ),
        (heard(STARTED), "ended the process that watches over it; does it send signals to others?"),
        (heard({"stopped": "time"}), "could not be run: the process for it did not start; try again"),
        (
            heard({"ended": 1}, printed=b"ImportError: no torch"),
            "could not be run: the process for it did not start (the last it printed: ImportError: no torch)",
        ),
        (heard(STARTED, {"result": {"name": "x"}}), "wrote something else where the result of the check"),
        (heard(STARTED, {"refused": "x"}), "wrote something else where the reason of a refusal should stand"),
        (
            heard(STARTED, {"refused": {"kind": "SystemExit", "message": "x"}}),
            "wrote something else where the reason of a refusal should stand",
        ),
    ],
)
def test_each_way_to_end_without_a_result_has_its_sentence(
    said: Heard, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = attend_file(tmp_path, "")
    said = replace(said, traces=[trace.format(file=file) for trace in said.traces])
    monkeypatch.setattr(child, "run_contained", lambda *_, **__: said)
    with pytest.raises(ArgumentError, match=re.escape(f"{file} {message}")):
        check_file(file, "attend", options={})


def test_a_refusal_of_another_kind_keeps_its_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = heard(STARTED, {"refused": {"kind": "UnsupportedError", "message": "cannot"}})
    monkeypatch.setattr(child, "run_contained", lambda *_, **__: said)
    with pytest.raises(UnsupportedError, match=r"^cannot$"):
        check_file(attend_file(tmp_path, ""), "attend", options={})


def test_a_fault_of_headwise_in_the_child_is_not_laid_on_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = heard(STARTED, {"failed": "Traceback:\n  File x\nTypeError: of headwise\n"})
    monkeypatch.setattr(child, "run_contained", lambda *_, **__: said)
    with pytest.raises(RuntimeError, match="of headwise") as caught:
        check_file(attend_file(tmp_path, ""), "attend", options={})
    assert str(caught.value) == "in the checking process, TypeError: of headwise"
    assert caught.value.__notes__ == ["Traceback:\n  File x\nTypeError: of headwise\n"]


@pytest.mark.parametrize("result", [WRONG, UNKNOWN])
def test_any_result_comes_through(result: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = heard(STARTED, {"result": json.loads(written(result))}, {"ended": 0})
    monkeypatch.setattr(child, "run_contained", lambda *_, **__: said)
    assert check_file(attend_file(tmp_path, ""), "attend", options={}) == result


def test_the_function_is_there_under_the_package_too() -> None:
    assert headwise.check is check
