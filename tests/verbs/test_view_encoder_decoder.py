"""`view` on encoder-decoders, held against their own eager attention."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    PreTrainedTokenizerFast,
)

from headwise.errors import ArgumentError, ModelError, UnsupportedError
from headwise.models.attachment import AttachedLayer
from headwise.models.opening.opened_model import OpenedModel
from headwise.verbs.view import view
from headwise.verbs.view.parts import layers_of
from headwise.verbs.view.render_json import to_json
from headwise.verbs.view.render_page import page_data

from .small_models import (
    MARIAN,
    T5,
    eager,
    opened,
    small_model,
    word_tokenizer,
)

TEXT, WRITTEN = "the cat sat on the mat", "le chat dort bien"


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return word_tokenizer(ends=True)


@pytest.fixture(scope="module")
def marian(tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory) -> OpenedModel:
    return opened(small_model("MarianMTModel", MARIAN), tmp_path_factory.mktemp("marian"), tokenizer)


@pytest.mark.parametrize(
    ("kind", "settings"), [("MarianMTModel", MARIAN), ("T5ForConditionalGeneration", T5)]
)
@pytest.mark.parametrize(
    ("part", "attentions", "module"),
    [
        ("encoder", "encoder_attentions", ("self_attn", "SelfAttention")),
        ("decoder", "decoder_attentions", ("self_attn", "SelfAttention")),
        ("cross", "cross_attentions", ("encoder_attn", "EncDecAttention")),
    ],
)
def test_each_part_of_an_encoder_decoder_is_shown_under_its_own_name(
    *,
    kind: str,
    settings: dict[str, Any],
    part: Any,
    attentions: str,
    module: tuple[str, str],
    tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
) -> None:
    model = opened(small_model(kind, settings), tmp_path, tokenizer)
    found = view(model, TEXT, decoder_text=WRITTEN, part=part, rows=[-1, 1])
    read, written = [token.id for token in found.key_tokens or found.tokens], [0, 10, 11, 12, 13]
    ids = torch.tensor([read if part != "decoder" else [4, 5, 6, 7, 4, 9, 2]])
    outputs = eager(model, input_ids=ids, decoder_input_ids=torch.tensor([written]))
    expected = getattr(outputs, attentions)
    assert [maps.layer for maps in found.layers] == list(range(len(expected)))
    for maps, weights in zip(found.layers, expected, strict=True):
        assert maps.name.endswith(module)
        assert ("encoder" if part == "encoder" else "decoder") in maps.name
        np.testing.assert_allclose(maps.weights, weights[0].numpy(), atol=1e-5)
        np.testing.assert_allclose(
            maps.exact_weights, weights[0].numpy()[:, [1, found.exact_rows[1]]], atol=1e-5
        )
    texts = ["the", " cat", " sat", " on", " the", " mat", "</s>"]
    decoded = ["<pad>", "le", " chat", " dort", " bien"]
    assert [token.text for token in found.tokens] == (texts if part == "encoder" else decoded)
    assert (found.key_tokens is not None) == (part == "cross")
    assert [token.text for token in found.key_tokens or ()] == (texts if part == "cross" else [])
    assert (found.part, found.facts.causal) == (part, part == "decoder")
    probabilities = outputs.logits[0, -1].softmax(-1)
    assert found.next_tokens[0].probability == pytest.approx(float(probabilities.max()), abs=1e-5)
    header, blocks = page_data(found)
    assert (header["seq_len"], header["kv_len"]) == expected[0].shape[2:]
    assert blocks["thumbnails/0"].shape == expected[0].shape[1:]
    assert json.loads(json.dumps(to_json(found), allow_nan=False))["part"] == part


def test_cross_attention_is_shown_where_nothing_else_is_asked_for(marian: OpenedModel) -> None:
    found = view(marian, TEXT, decoder_text=WRITTEN)
    assert found.part == "cross"
    # Keys and values of 3 layers x 2 heads of 16, 2 bytes each, for one more token that is read.
    assert found.facts.kv_bytes_per_token == 3 * 2 * 2 * 16 * 2
    assert view(marian, TEXT, decoder_text=WRITTEN, part="encoder").facts.kv_bytes_per_token == 0


def test_without_a_text_the_decoder_reads_what_the_model_writes(marian: OpenedModel) -> None:
    said: list[str] = []
    found = view(marian, TEXT, part="decoder", notify=said.append)
    with torch.inference_mode():
        ids = torch.tensor([[4, 5, 6, 7, 4, 9, 2]])
        written = marian.model.generate(input_ids=ids, max_new_tokens=32, do_sample=False, num_beams=1)
    assert [token.id for token in found.tokens] == [token for token in written[0].tolist() if token != 2]
    assert said[:2] == ["small-marian writes up to 32 tokens", "running small-marian on 7 tokens"]


def test_a_model_that_cannot_write_is_told_with_the_way_out(
    marian: OpenedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**inputs: Any) -> None:
        raise IndexError("list index out of range")

    monkeypatch.setattr(marian.model, "generate", fail)
    with pytest.raises(
        ModelError, match=r"could not write a text of its own \(list index .*give its decoder a"
    ):
        view(marian, TEXT)


def test_a_decoder_text_that_is_too_long_is_refused_with_both_numbers(marian: OpenedModel) -> None:
    with pytest.raises(
        ArgumentError, match=r"for the decoder has 51 tokens and small-marian has positions for 41"
    ):
        view(marian, TEXT, decoder_text="le " * 50)
    with pytest.raises(ArgumentError, match=r"for the decoder: text is empty"):
        view(marian, TEXT, decoder_text="")


def test_a_decoder_without_a_start_is_refused(marian: OpenedModel) -> None:
    unsaid = {**T5, "decoder_start_token_id": None, "bos_token_id": None}
    model = small_model("T5ForConditionalGeneration", unsaid)
    with pytest.raises(ModelError, match=r"does not say what its decoder starts with: .*add it there"):
        view(replace(marian, model=model), TEXT, decoder_text=WRITTEN)


def test_tokens_beyond_the_vocabulary_of_the_decoder_are_refused(
    marian: OpenedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marian.model.config, "decoder_vocab_size", 11)
    with pytest.raises(
        ModelError, match=r"makes token 13 of the text for the decoder, and the model knows 11"
    ):
        view(marian, "the cat", decoder_text=WRITTEN)


def test_parts_and_decoder_texts_belong_to_encoder_decoders(minilm: OpenedModel) -> None:
    with pytest.raises(ArgumentError, match=r"part=cross was asked for, and minilm-l6 is no encoder-decoder"):
        view(minilm, TEXT, part="cross")
    with pytest.raises(
        ArgumentError, match=r"text for the decoder was given, and minilm-l6 is no encoder-dec"
    ):
        view(minilm, TEXT, decoder_text=WRITTEN)
    with pytest.raises(ArgumentError, match=r"part='middle' is none of encoder, decoder, cross"):
        view(minilm, TEXT, part="middle")  # type: ignore[arg-type]


def test_a_part_that_the_model_lacks_is_refused_with_those_it_has(marian: OpenedModel) -> None:
    layers = [AttachedLayer(0, "model.encoder.layers.0.self_attn", 4, 4, 8, 8, "self")]
    message = r"small-marian has no layer that is the decoder's attention to .*; there is: encoder"
    with pytest.raises(UnsupportedError, match=message):
        layers_of(marian, layers, "cross")


def test_a_tokenizer_that_fails_on_the_text_for_the_decoder_says_so(
    marian: OpenedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = PreTrainedTokenizerFast.__call__

    def call(self: PreTrainedTokenizerFast, text: Any = None, **options: Any) -> Any:
        if "text_target" in options:
            raise ValueError("no such language")
        return encode(self, text, **options)

    monkeypatch.setattr(PreTrainedTokenizerFast, "__call__", call)
    with pytest.raises(ModelError, match=r"tokenizer failed on the text for the decoder: no such language"):
        view(marian, TEXT, decoder_text=WRITTEN)
