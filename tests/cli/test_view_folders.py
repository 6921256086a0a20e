"""The command on folders of small models of other kinds, from the words typed to the page written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headwise.cli import main

from ..verbs.small_models import (
    HYBRID,
    MARIAN,
    SIZES,
    TOKENS,
    VISION,
    describe_images,
    small_model,
    word_tokenizer,
    write_image,
)


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def folder(kind: str, settings: dict[str, Any], *, name: str, text: bool, images: bool = False) -> Path:
    path = Path(name)
    small_model(kind, settings).save_pretrained(path)
    if text:
        word_tokenizer(ends=True).save_pretrained(path)
    if images:
        describe_images(path)
    return path


def document(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["view", *arguments, "--json"]) == 0, capsys.readouterr().err
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_an_encoder_decoder_reads_one_text_and_is_given_another(capsys: pytest.CaptureFixture[str]) -> None:
    folder("MarianMTModel", MARIAN, name="marian", text=True)
    given = ["marian", "the cat sat", "--decoder-text", "le chat dort"]
    cross = document([*given, "--rows", "-1", "--out", "cross.html"], capsys)
    assert cross["tokens"] == ["<pad>", "le", " chat", " dort"]
    assert cross["key_tokens"] == ["the", " cat", " sat", "</s>"]
    assert cross["attention_layers"][2]["name"] == "model.decoder.layers.2.encoder_attn"
    assert [len(head["weights"]) for head in cross["rows"][0]["heads"]] == 6 * [4]
    assert Path("cross.html").is_file()
    assert document([*given, "--part", "encoder"], capsys)["attention_layers"][0]["num_heads"] == 4
    assert main(["view", *given[:2], "--part", "decoder"]) == 0
    assert "3 layers x 2 heads of 16, the decoder's self-attention, causal" in capsys.readouterr().out


def test_a_vision_model_reads_an_image(capsys: pytest.CaptureFixture[str]) -> None:
    folder("ViTModel", VISION, name="vit", text=False, images=True)
    image = write_image(Path("cat.png"))
    seen = document(["vit", "--image", str(image), "--out", "cat.html"], capsys)
    assert (seen["image_grid"], seen["text"], len(seen["tokens"])) == ([3, 3], "cat.png", 10)
    assert main(["view", "vit", "--image", str(image)]) == 0
    assert "cat.png as 3 x 3 patches behind 1 token of the model's own" in capsys.readouterr().out


def test_both_towers_of_a_model_can_be_seen(capsys: pytest.CaptureFixture[str]) -> None:
    text = {**SIZES, **TOKENS, "max_position_embeddings": 64}
    settings = {"text_config": text, "vision_config": VISION, "projection_dim": 16}
    folder("CLIPModel", settings, name="clip", text=True, images=True)
    assert document(["clip", "--image", str(write_image(Path("cat.png")))], capsys)["image_grid"] == [3, 3]
    assert document(["clip", "the cat"], capsys)["tokens"] == ["the", " cat", "</s>"]


def test_a_hybrid_says_what_is_not_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    folder("JambaForCausalLM", HYBRID, name="jamba", text=True)
    assert main(["view", "jamba", "the cat sat"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "jamba 2 of 4 layers (1, 3) x 4 heads of 8, 2 KV heads, causal" in words
    assert "2 modules not recorded: model.layers.0.mamba (computes no softmax attention)" in words


def test_two_models_stand_beside_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    llama = {**SIZES, **TOKENS, "max_position_embeddings": 64}
    folder("LlamaForCausalLM", llama, name="one", text=True)
    folder("LlamaForCausalLM", {**llama, "rope_theta": 3.0}, name="two", text=True)
    capsys.readouterr()  # what saving them said
    assert main(["view", "one", "the cat sat", "--against", "two"]) == 0
    shown = capsys.readouterr()
    assert "Heads that differ most, as layer.head" in shown.out.splitlines()
    assert shown.out.endswith("Page: headwise-one-against-two.html\n")
    assert shown.err.splitlines() == [
        "running one on 4 tokens", "running two on 4 tokens", "writing headwise-one-against-two.html",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["vit"], "vit reads an image, not a text; give one with --image FILE in place of the text"),
        (["vit", "--image", "t.txt"], "image=t.txt cannot be read: "),
        (["marian", "the cat", "--scores"], "marian is an encoder-decoder, and the scores are of one text"),
        (["marian", "the cat", "--rows", "9", "--decoder-text", "le"], "of 2 query rows"),
        (
            ["marian", "--text-file", "t.txt", "--layer", "3"],
            "layer=3 does not exist; marian has layers 0 to 2",
        ),
        (["marian", "the " * 50], "text has 51 tokens and marian has positions for 41"),
        (["marian", "the cat", "--against-text", "the " * 50], "of --against-text: text has 51 tokens"),
        (["marian", "the cat", "--against", "vit"], "of --against: vit reads an image, not a text"),
    ],
)
def test_what_a_model_cannot_do_is_refused_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder("ViTModel", VISION, name="vit", text=False, images=True)
    folder("MarianMTModel", MARIAN, name="marian", text=True)
    Path("t.txt").write_text("the cat sat", encoding="utf-8")
    assert main(["view", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    [error] = [line for line in shown.err.splitlines() if line.startswith("error: ")]
    assert message in error
    assert not list(Path().glob("*.html*"))
