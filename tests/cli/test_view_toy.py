"""The command on the model that needs no download, from the words typed to the numbers shown."""

import json
from pathlib import Path

import pytest

from headwise.cli import main


def test_view_shows_the_two_heads_of_the_toy_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    assert main(["view", "toy-induction", "The cat sat. The cat", "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert seen["model"] == "toy-induction"
    assert "".join(seen["tokens"]) == "<bos>The cat sat. The cat"
    likeliest = seen["next_tokens"][0]
    assert (likeliest["token"], likeliest["probability"] > 0.99) == (" sat", True)
    previous = {(head["layer"], head["head"]): head["previous_token"] for head in seen["heads"]}
    assert previous.pop((0, 1)) > 0.99
    assert max(previous.values()) < 0.5


def test_what_is_asked_for_reaches_the_document_and_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("The cat sat.\nThe cat", encoding="utf-8")
    given = ["view", "toy-induction", "--text-file", "text.txt", "--rows", "-1", "--scores"]
    assert main([*given, "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert "".join(seen["tokens"]) == "<bos>The cat sat.\nThe cat"
    [row] = seen["rows"]
    assert (row["row"], row["token"]) == (len(seen["tokens"]) - 1, " cat")
    induction = next(head for head in row["heads"] if (head["layer"], head["head"]) == (1, 2))
    assert induction["weights"][seen["tokens"].index(" sat")] > 0.99
    assert main([*given, "--against-text", "A dog ran", "--out", "both.html"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert "Strongest heads on 64 random tokens twice, as layer.head" in shown
    assert "Heads that differ most, as layer.head" in shown
    assert shown[-1] == "Page: both.html"
    assert '"against":{' in Path("both.html").read_text(encoding="utf-8")


def test_rows_beyond_the_text_are_refused_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    assert main(["view", "toy-induction", "The cat", "--rows", "99"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines()[-1].startswith("error: rows[0]=99 does not exist; of 3 query rows")
    assert not list(tmp_path.glob("*.html*"))
