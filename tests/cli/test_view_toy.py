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
