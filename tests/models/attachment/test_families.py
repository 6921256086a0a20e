"""Every family of the table: equal to its own eager attention on a padded batch, or refused with a reason."""

import re

import pytest
import torch

from headwise.errors import MismatchError, UnsupportedError
from headwise.evidence import Collect
from headwise.models.attachment import attach, interface
from headwise.models.attachment.probe_inputs import probes

from .families import ENCODER_DECODERS, FAMILIES, REFUSED, VISUAL, Family, family

EQUAL = [each for each in FAMILIES if each.refused is None]
READ_TEXT = [each for each in EQUAL if each not in VISUAL and each.kind != "WhisperModel"]


def by_kind(given: Family) -> str:
    return given.kind


def probe_of(model) -> dict:
    """The inputs on which attach proves this model: the last candidate holds an image where one is needed."""
    return list(probes(model))[-1]


def eager_weights(model, inputs) -> list[torch.Tensor]:
    """The weights of every attention layer in the order in which the layers run."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        outputs = model(**inputs, output_attentions=True)
    if model.config.is_encoder_decoder:
        pairs = zip(outputs.decoder_attentions, outputs.cross_attentions, strict=True)
        return [*outputs.encoder_attentions, *(weights for pair in pairs for weights in pair)]
    if "vision_model_output" in outputs:
        return [*outputs.vision_model_output.attentions, *outputs.text_model_output.attentions]
    # MiniMax also hands out the state of its linear attention under that name; weights are never negative.
    return [weights for weights in outputs.attentions if not (weights < 0).any()]


@pytest.mark.parametrize("given", EQUAL, ids=by_kind)
def test_family_equals_eager_and_all_its_layers_are_found(given):
    with attach(given.build()) as heads:
        assert tuple(layer.layer for layer in heads.layers) == given.layers
        assert heads.max_logit_difference < 1e-5
        assert len(heads.unseen) == given.unseen


@pytest.mark.parametrize("given", EQUAL, ids=by_kind)
def test_weights_of_every_head_equal_those_of_eager(given):
    model = given.build()
    inputs = probe_of(model)
    expected = eager_weights(model, inputs)
    with attach(model, collect=Collect(weights=True)) as heads:
        with torch.no_grad():
            model(**inputs)
        assert len(expected) == len(heads.layers)
        for layer, weights in zip(heads.layers, expected, strict=True):
            found = heads.evidence[layer]
            assert found.weights.shape == weights.shape
            assert not found.weights[~found.visible].any()
            # A padding row that sees no key is 0 here and uniform under eager, and what comes of it differs.
            real = torch.ones_like(found.visible)
            if layer.kind == "cross":
                real &= inputs["decoder_attention_mask"].bool()[:, None]
            rows = found.visible & real
            torch.testing.assert_close(found.weights[rows], weights[rows], atol=1e-5, rtol=0)


@pytest.mark.parametrize("given", REFUSED, ids=by_kind)
def test_family_outside_the_interface_is_refused_and_left_as_it_was(given):
    model = given.build()
    before = model.config._attn_implementation
    with pytest.raises(UnsupportedError, match=re.escape(given.refused)):
        attach(model)
    assert model.config._attn_implementation == before
    assert interface.NAME not in interface.AttentionInterface._global_mapping


@pytest.mark.parametrize("given", READ_TEXT, ids=by_kind)
def test_a_lost_padding_mask_is_caught_by_the_probe(given, monkeypatch):
    whole = interface.sdpa_mask
    monkeypatch.setattr(
        interface, "sdpa_mask", lambda *args, **kwargs: whole(*args, **{**kwargs, "attention_mask": None})
    )
    with pytest.raises(MismatchError, match=r"gives other numbers .* than under eager: \w+ differs by"):
        attach(given.build())


@pytest.mark.parametrize(
    ("kind", "dropped"),
    [
        ("GptOssForCausalLM", "s_aux"),
        ("Gemma2ForCausalLM", "softcap"),
        ("Gemma2ForCausalLM", "scaling"),
        ("T5ForConditionalGeneration", "position_bias"),
        ("T5ForConditionalGeneration", "scaling"),
    ],
)
def test_a_dropped_keyword_is_caught_by_the_probe(kind, dropped, monkeypatch):
    whole = interface.attention_function
    monkeypatch.setattr(
        interface, "attention_function", lambda *args, **kwargs: whole(*args, **{**kwargs, dropped: None})
    )
    with pytest.raises(MismatchError, match="gives other numbers"):
        attach(family(kind).build())


def test_the_window_is_applied_once():
    """Mistral's mask carries its window, and the keyword arrives as well."""
    model = family("MistralForCausalLM").build()
    with attach(model, collect=Collect(weights=True)) as heads:
        with torch.no_grad():
            model(input_ids=torch.arange(3, 16)[None])
        seen = heads.evidence[0].weights[0, 0] > 0
    assert seen.sum(-1).tolist() == [1, 2, 3, 4] + [5] * 9


def test_sinks_take_the_rest_of_each_row():
    model = family("GptOssForCausalLM").build()
    with attach(model, collect=Collect(weights=True)) as heads:
        with torch.no_grad():
            model(input_ids=torch.arange(3, 16)[None])
        for layer in heads.layers:
            found = heads.evidence[layer]
            assert float(found.sink.mean()) > 0.05
            torch.testing.assert_close(found.weights.sum(-1), 1 - found.sink)


def test_value_heads_of_their_own_width_are_reported():
    with attach(family("DeepseekV3ForCausalLM").build()) as heads:
        assert [(layer.head_dim, layer.value_head_dim) for layer in heads.layers] == [(12, 10)] * 2


@pytest.mark.parametrize("given", ENCODER_DECODERS, ids=by_kind)
def test_cross_attention_is_told_from_self_attention(given):
    with attach(given.build()) as heads:
        assert [layer.kind for layer in heads.layers] == ["self"] * 2 + ["self", "cross"] * 3


def test_layers_that_are_no_attention_are_named():
    with attach(family("Qwen3NextForCausalLM").build()) as heads:
        assert [(each.name, each.reason) for each in heads.unseen] == [
            (f"model.layers.{layer}.linear_attn", "computes no softmax attention") for layer in range(3)
        ]


def test_a_pooling_head_outside_the_interface_is_named():
    with attach(family("SiglipVisionModel").build()) as heads:
        assert [each.name for each in heads.unseen] == ["head.attention"]
        assert "behind the interface" in heads.unseen[0].reason
