import io
import json
import os
import sys
from pathlib import Path

import pytest

from headwise.cli import main
from headwise.cli.page_path import checked_page_path
from headwise.cli.view import progress
from headwise.cli.view_request import DEFAULT_TEXT, default_page
from headwise.errors import ArgumentError, ModelError

from .stand import Stand


def test_without_arguments_the_small_model_reads_the_sample_sentence(
    stand: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view"]) == 0
    assert stand.calls == [{"model": "smollm2-135m", "text": DEFAULT_TEXT}]
    assert Path("headwise-smollm2-135m.html").read_text(encoding="utf-8") == "page of the view"
    shown = capsys.readouterr()
    assert shown.out == "table of the view [bold]brackets[/bold]\nPage: headwise-smollm2-135m.html\n"
    assert shown.err == "loading\nwriting headwise-smollm2-135m.html\n"


def test_arguments_reach_the_view(stand: Stand, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--layer", "7", "--rows", "-1, 2", "--scores", "--part", "decoder", "--decoder-text", "mine"]
    assert main(["view", "org/some-model", "my text", *given, "--out", "mine.html"]) == 0
    wanted = {"layer": 7, "rows": (-1, 2), "scores": True, "part": "decoder", "decoder_text": "mine"}
    assert stand.calls == [{"model": "org/some-model", "text": "my text", **wanted}]
    assert Path("mine.html").is_file()
    assert capsys.readouterr().out.endswith("Page: mine.html\n")


def test_json_alone_writes_no_page(stand: Stand, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"found": "the view", "page": None}
    assert list(Path().iterdir()) == []


def test_json_with_a_path_writes_the_page_and_names_it(
    stand: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", "--json", "--out", "p.html"]) == 0
    assert json.loads(capsys.readouterr().out) == {"found": "the view", "page": "p.html"}
    assert Path("p.html").is_file()


def test_errors_of_the_view_leave_no_page(stand: Stand, capsys: pytest.CaptureFixture[str]) -> None:
    stand.fails = {1: ModelError("no such model")}
    assert main(["view", "org/nothing"]) == 2
    assert capsys.readouterr() == ("", "loading\nerror: no such model\n")
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("model", ["nothing", "no.gguf", "weights.bin", "", "a\tb"])
def test_a_model_that_cannot_be_is_refused_before_anything_is_loaded(
    model: str, stand: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("weights.bin").write_bytes(b"")
    assert main(["view", model]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    assert stand.calls == []


def test_a_text_without_quotes_is_refused_with_the_quotes_it_needs(
    stand: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", "minilm-l6", "The", "bank", "raised", "--json"]) == 2
    expected = "error: TEXT is 'The' and 'bank' follows it; put a text of several words in quotes\n"
    assert capsys.readouterr() == ("", expected)
    assert main(["view", "minilm-l6", "The", "--nothing"]) == 2
    assert "No such option: --nothing" in capsys.readouterr().err
    assert stand.calls == []


def test_a_text_in_the_place_of_the_model_is_told_apart(
    stand: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", "The bank raised rates"]) == 2
    message = capsys.readouterr().err
    assert message.startswith(
        "error: there is no model 'The bank raised rates'; pass a name of the catalogue"
    )
    assert message.endswith("name the model before it: headwise view smollm2-135m TEXT\n")
    assert stand.calls == []


@pytest.mark.parametrize("text", ["", " \n", "half \udc80"])
def test_a_text_that_cannot_be_is_refused_before_anything_is_loaded(
    text: str, stand: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", "org/some-model", text]) == 2
    assert capsys.readouterr().err.startswith("error: text ")
    assert stand.calls == []


@pytest.mark.parametrize("layer", ["-1", "two", "1.5"])
def test_a_layer_that_is_no_count_is_refused_before_the_model_is_loaded(
    layer: str, stand: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", "--layer", layer]) == 2
    assert "Invalid value for '--layer'" in capsys.readouterr().err
    assert stand.calls == []


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("folder", r"error: --out folder is a folder; name the file to write, such as folder/view.html"),
        ("", r"error: --out . is a folder"),
        (
            "gone/page.html",
            r"error: --out gone/page.html lies in a folder that does not exist; make gone first",
        ),
        ("file/page.html", r"error: --out file/page.html "),
        (
            "/dev/null",
            r"error: --out /dev/null is not a regular file; name the file to write, such as view.html",
        ),
        ("n" * 300, r"cannot be looked at: File name too long; name another file"),
    ],
)
def test_a_page_that_cannot_be_written_is_refused_before_the_model_is_loaded(
    out: str, message: str, stand: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("folder").mkdir()
    Path("file").touch()
    for options in ([], ["--json"]):
        assert main(["view", "--out", out, *options]) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert message in shown.err
    assert stand.calls == []


def test_a_folder_closed_to_writing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Not by its mode: the super-user may write anywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    with pytest.raises(ArgumentError, match=r"page\.html lies in a folder that you may not write to"):
        checked_page_path(tmp_path / "page.html", such_as="page.html")


def test_an_existing_page_may_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "page.html").touch()
    assert checked_page_path(tmp_path / "page.html", such_as="page.html") == tmp_path / "page.html"


@pytest.mark.parametrize(
    ("model", "page"),
    [
        ("smollm2-135m", "headwise-smollm2-135m.html"),
        ("org/Some-Model", "headwise-Some-Model.html"),
        ("../../etc/", "headwise-etc.html"),
        ("..", "headwise.html"),
        ("/", "headwise.html"),
        ("we\x1bird ; name", "headwise-we-ird-name.html"),
        ("m" * 300, f"headwise-{'m' * 80}.html"),
    ],
)
def test_the_page_is_named_after_the_model_in_the_current_folder(model: str, page: str) -> None:
    assert default_page(model) == Path(page)


def test_progress_in_a_terminal_is_a_spinner_on_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with progress() as notify:
        notify("step \x1b[2J[bold]")
    shown = sys.stderr.getvalue()
    assert "\x1b[2J" not in shown
    assert shown.index("\x1b[?25l") < shown.index("\x1b[?25h")  # the cursor went away and came back
