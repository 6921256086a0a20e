"""What `check` runs a model on, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from headwise.errors import ArgumentError, UnsupportedError
from headwise.models.attachment import attach
from headwise.models.opening.opened_model import OpenedModel, open_model
from headwise.verbs.check_model import ModelCheck, check_model
from headwise.verbs.check_model.reading import candidates
from headwise.verbs.check_model.render_json import to_json

from ...models.attachment.families import GROUPED, family
from ..small_models import MARIAN, opened, small_model, word_tokenizer
from .changing import told


def test_a_model_in_memory_reads_random_tokens_of_the_seed() -> None:
    model = family("LlamaForCausalLM").build()
    found = check_model(model, seed=7)
    assert (found.model, found.text, found.num_tokens, found.seed) == ("LlamaForCausalLM", None, 23, 7)
    assert check_model(model, seed=7).layers == found.layers
    assert check_model(model, seed=8).layers != found.layers
    assert "on random tokens (seed 7), 23 tokens" in told(found)


def test_it_reads_no_more_than_it_has_positions() -> None:
    found = check_model(family("BertModel").build(max_position_embeddings=11))
    assert found.num_tokens == 11


def test_a_text_that_is_given_is_read(minilm: OpenedModel) -> None:
    found = check_model(minilm, text="a cat sat")
    assert found.text == "a cat sat"
    assert found.num_tokens == 5
    assert '"a cat sat", 5 tokens' in told(found)


def test_a_text_of_few_tokens_leaves_weights_alone(smollm2: OpenedModel) -> None:
    found = check_model(smollm2, text="The bank")
    assert found.is_right
    assert {layer.not_found for layer in found.layers} == {
        "W_Q, W_K and W_V: a text of 2 tokens is too short to tell which weights made what"
    }
    assert "Not examined\nmodel.layers.0.self_attn, model.layers.1.self_attn, " in told(found)


def test_an_encoder_decoder_reads_the_text_twice(tmp_path: Path) -> None:
    model = opened(small_model("MarianMTModel", MARIAN), tmp_path, word_tokenizer(ends=True))
    found = check_model(model, text="the cat sat on a mat")
    assert found.is_right
    assert {layer.kind for layer in found.layers} == {"self", "cross"}
    given = next(candidates(model, text="the cat sat on a mat", seed=0))
    start = model.model.config.decoder_start_token_id
    ids = given.inputs["input_ids"][0].tolist()
    assert given.inputs["decoder_input_ids"][0].tolist() == [start, *ids[:-2]]


def test_where_the_sample_does_not_fit_random_tokens_are_read(tmp_path: Path) -> None:
    model = small_model("MarianMTModel", {**MARIAN, "max_position_embeddings": 6})
    found = check_model(opened(model, tmp_path, word_tokenizer(ends=True)))
    assert found.text is None
    assert found.num_tokens == 6


def test_the_name_of_the_catalogue_and_progress_are_told() -> None:
    said: list[str] = []
    found = check_model("toy-induction", notify=said.append)
    assert found.model == "toy-induction"
    assert said[0] == "running toy-induction"
    assert said[-1] == "comparing the heads of toy-induction"


@pytest.fixture(scope="module")
def toy() -> ModelCheck:
    return check_model(open_model("toy-induction"))


def test_what_is_true_of_the_model_that_is_made_by_hand(toy: ModelCheck) -> None:
    """It has heads that rest on purpose, and `check` does not know the purpose."""
    assert not toy.is_right
    assert {each.kind for each in toy.findings} == {"shared-weights", "dead-output"}
    assert all(layer.is_right for layer in toy.layers)
    resting = {
        (place.layer, place.head)
        for each in toy.findings
        if each.kind == "dead-output"
        for place in each.heads
    }
    assert (1, 2) not in resting, "the induction head"


def test_json_holds_everything_and_no_nan(toy: ModelCheck) -> None:
    document = json.loads(json.dumps(to_json(toy), allow_nan=False))
    assert document["is_right"] is False
    assert [each["kind"] for each in document["findings"]] == [each.kind for each in toy.findings]
    assert document["findings"][0]["heads"][0].keys() == {"layer", "name", "head"}
    assert document["layers"][1]["projections"] == {
        matrix: f"model.layers.1.self_attn.{letter}_proj"
        for matrix, letter in zip(("query", "key", "value", "output"), "qkvo", strict=True)
    }
    assert document["layers"][0]["is_right"] is True
    assert document["remarks"] == []


def test_a_result_cannot_be_changed(toy: ModelCheck) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        toy.text = ""  # type: ignore[misc]
    with pytest.raises(TypeError):
        toy.findings[0].numbers["query_factor"] = 2  # type: ignore[index]


def test_a_text_for_a_model_without_tokenizer_is_refused() -> None:
    with pytest.raises(
        ArgumentError,
        match=r"^text='a cat' was given, and LlamaForCausalLM is a model in memory that comes without a "
        r"tokenizer: give what open_model returns$",
    ):
        check_model(family("LlamaForCausalLM").build(), text="a cat")


def test_a_text_for_a_model_of_images_is_refused() -> None:
    with pytest.raises(
        ArgumentError, match=r"^text='a cat' .*ViTModel reads pixel_values and no text: leave the"
    ):
        check_model(family("ViTModel").build(), text="a cat")


def test_an_attached_model_is_refused() -> None:
    model = family("LlamaForCausalLM").build()
    with (
        attach(model),
        pytest.raises(ArgumentError, match=r"^LlamaForCausalLM is attached to headwise, .*detach\(\)"),
    ):
        check_model(model)
    assert check_model(model).is_right


def test_a_model_without_numbers_is_refused() -> None:
    with torch.device("meta"):
        empty = LlamaForCausalLM(LlamaConfig(**GROUPED))
    with pytest.raises(UnsupportedError, match="has parameters on the meta device, which hold no numbers"):
        check_model(empty)


def test_a_mask_that_is_no_tensor_is_refused() -> None:
    model = family("LlamaForCausalLM").build()
    model.set_attn_implementation("flex_attention")
    with pytest.raises(
        UnsupportedError,
        match=r"^LlamaAttention hands a BlockMask to its attention as a mask, .*attn_implementation=\"eager",
    ):
        check_model(model)


def test_a_model_that_does_not_run_says_why() -> None:
    model = family("LlamaForCausalLM").build()
    model.model.layers[0].mlp.up_proj = torch.nn.Linear(31, 40)
    with pytest.raises(
        UnsupportedError,
        match=r"^LlamaForCausalLM could not be run \(input_ids is its main input\): .*shapes",
    ):
        check_model(model)


@pytest.mark.parametrize("seed", [-1, 1.5, True])
def test_a_seed_is_a_whole_number(seed: object) -> None:
    with pytest.raises(ArgumentError, match="seed"):
        check_model(family("LlamaForCausalLM").build(), seed=seed)  # type: ignore[arg-type]
