"""What `headwise view` is given to read: files, standard input, images, and what to put beside it."""

import io
import sys
from pathlib import Path

import pytest

from headwise.cli import main, text_file
from headwise.cli.view_request import DEFAULT_TEXT
from headwise.errors import ModelError

from .stand import Stand


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that refuses, with nothing printed and nothing written."""
    before = sorted(Path().iterdir())
    assert main(["view", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert sorted(Path().iterdir()) == before
    return shown.err


def test_a_text_is_read_from_a_file_to_the_last_byte(stand: Stand) -> None:
    Path("text.txt").write_bytes("\ufeffThe bänk\r\nraised 銀行 \n".encode())
    assert main(["view", "--text-file", "text.txt"]) == 0
    assert stand.calls == [{"model": "smollm2-135m", "text": "The bänk\r\nraised 銀行 \n"}]


def test_a_text_is_read_from_standard_input(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("piped téxt".encode()), encoding="ascii"))
    assert main(["view", "org/some-model", "--text-file", "-"]) == 0
    assert stand.calls == [{"model": "org/some-model", "text": "piped téxt"}]


def test_standard_input_that_is_closed_is_refused(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert refused(["--text-file", "-"], capsys) == (
        "error: --text-file - is standard input, which is closed; give a file\n"
    )
    assert stand.calls == []


@pytest.mark.parametrize("option", ["--text-file", "--against-text-file"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "text is empty; give at least one word"),
        (b"\xef\xbb\xbf\n ", "text is only whitespace (2 characters)"),
        (b"The b\xe4nk", "is not UTF-8: byte 5 is E4 (invalid continuation byte); save it as UTF-8"),
        (b"\xff\xfeT\0h\0", "is not UTF-8: byte 0 is FF (invalid start byte); save it as UTF-8"),
        (b"half \xe2\x80", "is not UTF-8: byte 5 is E2 (unexpected end of data); save it as UTF-8"),
        (b"x" * 1025, "is larger than 1,024 bytes, and no model reads so much at once; give a part of it"),
    ],
)
def test_a_file_that_is_no_text_is_refused(
    *,
    option: str,
    content: bytes,
    message: str,
    stand: Stand,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(text_file, "LARGEST_BYTES", 1024)
    Path("given.txt").write_bytes(content)
    said = refused([option, "given.txt"], capsys)
    assert said.startswith(f"error: {option} given.txt")
    assert message in said
    assert said.count("\n") == 1
    assert stand.calls == []


def test_a_file_as_large_as_allowed_is_read(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_file, "LARGEST_BYTES", 1024)
    Path("given.txt").write_bytes(b"x" * 1024)
    assert main(["view", "--text-file", "given.txt"]) == 0
    assert len(stand.calls[0]["text"]) == 1024


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("gone.txt", "--text-file gone.txt does not exist; give a text file"),
        (".", "--text-file . is a folder; give a text file"),
        ("n" * 300, "cannot be read: File name too long; give a text file"),
        ("a\0b", "embedded null byte"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(
    given: str, message: str, stand: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(["--text-file", given], capsys)
    assert stand.calls == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["smollm2-135m", "The bank", "--text-file", "t.txt"], "TEXT and --text-file were both given"),
        (
            ["smollm2-135m", "The bank", "--image", "t.txt"],
            "TEXT and --image were both given, and a model reads",
        ),
        (["--against", "minilm-l6", "--against-text", "x"], "--against and --against-text were both given"),
        (["--text-file", "-", "--against-text-file", "-"], "would both read standard input; name a file"),
        (["--image", "t.txt", "--against-text", "x"], "--image is no text to compare another text with"),
        (["--image", "gone.png"], "--image gone.png does not exist; give an image file"),
        (["--image", "."], "--image . is a folder; give an image file"),
        (["--image", "n" * 300], "cannot be looked at: File name too long"),
        (["--against", "smollm2-135m"], "--against smollm2-135m is the same model; name another"),
        (["--against", "nothing"], "there is no model 'nothing'"),
        (["--against", "The bank raised"], "If this is a text to compare with, use --against-text\n"),
        (["--against-text", DEFAULT_TEXT], "the text to compare with is the same text; give another"),
        (["--against-text", " "], "error: --against-text: text is only whitespace"),
        (["--decoder-text", ""], "error: --decoder-text: text is empty"),
        (["--part", "middle"], "Invalid value for '--part'"),
        (
            ["--rows", "1,two"],
            "--rows 1,two has 'two' in it, which is no whole number; give numbers of tokens",
        ),
        (["--rows", ""], "has '' in it, which is no whole number"),
        (["--rows", "3,3"], "rows[0] and rows[1] are both 3; name each once"),
        (["--rows", "9" * 5000], "which is no whole number"),
    ],
)
def test_a_request_that_cannot_be_is_refused_before_anything_is_loaded(
    arguments: list[str], message: str, stand: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("t.txt").write_text("some text", encoding="utf-8")
    assert message in refused(arguments, capsys)
    assert stand.calls == []


def test_two_models_read_the_same_text(stand: Stand, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", "org/one", "my text", "--against", "org/two", "--scores"]) == 0
    assert stand.calls == [
        {"model": "org/one", "text": "my text", "scores": True},
        {"model": "org/two", "text": "my text", "scores": True},
    ]
    shown = capsys.readouterr().out
    assert shown.startswith("table of the view beside the view")
    assert shown.endswith("Page: headwise-one-against-two.html\n")


def test_one_model_that_is_opened_once_reads_two_texts_and_is_scored_once(stand: Stand) -> None:
    Path("other.txt").write_text("other text", encoding="utf-8")
    given = ["--against-text-file", "other.txt", "--scores", "--out", "p.html"]
    assert main(["view", "org/one", "my text", *given]) == 0
    assert stand.calls == [
        {"model": "opened org/one", "text": "my text", "scores": True},
        {"model": "opened org/one", "text": "other text"},
    ]
    assert Path("p.html").read_text(encoding="utf-8") == "page of the view beside the view"


@pytest.mark.parametrize("option", ["--against", "--against-text"])
def test_an_error_of_the_second_says_so_and_leaves_no_page(
    option: str, stand: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    stand.fails = {2: ModelError("it is too long")}
    assert refused([option, "org/two"], capsys).endswith(f"error: of {option}: it is too long\n")
