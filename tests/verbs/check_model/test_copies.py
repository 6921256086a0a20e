"""Which matrices are copies of each other, and what is made of it."""

from __future__ import annotations

import pytest
import torch

from headwise.models.attachment import AttachedLayer
from headwise.verbs.check_model import check_model
from headwise.verbs.check_model.sources import Source
from headwise.verbs.check_model.weights import LayerWeights

from ...models.attachment.families import family
from .changing import columns, copy_head, rows, said

WIDTH = 8
ALL = ("query", "key", "value", "output")


@pytest.mark.parametrize("factor", [-1.0, 0.25, -3.0])
def test_a_copy_by_a_factor_or_with_another_sign(factor: float) -> None:
    model = family("BertModel").build()
    query = model.encoder.layer[1].attention.self.query
    with torch.no_grad():
        query.bias.normal_()
        rows(query, 3, WIDTH).copy_(factor * rows(query, 0, WIDTH))
        query.bias[3 * WIDTH :] = factor * query.bias[:WIDTH]
    found = check_model(model)
    assert said(found) == [("shared-weights", 1, (0, 3), ("query",))]
    assert found.findings[0].words == f"heads 0 and 3 have the same W_Q and its bias (times {factor:.4g})"
    assert found.findings[0].numbers["query_factor"] == pytest.approx(factor)


def test_another_bias_is_said() -> None:
    model = family("BertModel").build()
    query = model.encoder.layer[1].attention.self.query
    with torch.no_grad():
        query.bias.normal_()
        rows(query, 3, WIDTH).copy_(rows(query, 0, WIDTH))
    assert check_model(model).findings[0].words == "heads 0 and 3 have the same W_Q (but not its bias)"


@pytest.mark.parametrize(("noise", "is_found"), [(0.01, True), (0.1, False)])
def test_how_near_a_copy_must_be(noise: float, is_found: bool) -> None:
    model = family("BertModel").build()
    value = model.encoder.layer[0].attention.self.value
    torch.manual_seed(7)
    with torch.no_grad():
        one = rows(value, 1, WIDTH)
        apart = torch.randn_like(one)
        rows(value, 2, WIDTH).copy_(one + noise * apart * one.norm() / apart.norm())
    found = check_model(model)
    assert found.is_right != is_found
    if is_found:
        assert said(found) == [("shared-weights", 0, (1, 2), ("value",))]
        assert found.findings[0].numbers["value_difference"] == pytest.approx(noise, rel=0.05)


def test_three_copies_are_one_finding() -> None:
    model = family("BertModel").build()
    own, output = model.encoder.layer[0].attention.self, model.encoder.layer[0].attention.output.dense
    with torch.no_grad():
        for head in (1, 2):
            for linear in (own.query, own.key, own.value):
                copy_head(linear, 0, head, WIDTH)
            columns(output, head, WIDTH).copy_(columns(output, 0, WIDTH))
    found = check_model(model)
    assert said(found) == [("duplicate-heads", 0, (0, 1, 2), ALL)]
    assert "heads 0, 1 and 2 are copies of each other" in found.findings[0].words


def test_a_layer_of_nothing_but_copies() -> None:
    """As where every head was filled with the same numbers: the search for places must not lose its way."""
    model = family("BertModel").build()
    own, output = model.encoder.layer[0].attention.self, model.encoder.layer[0].attention.output.dense
    with torch.no_grad():
        for head in (1, 2, 3):
            for linear in (own.query, own.key, own.value):
                copy_head(linear, 0, head, WIDTH)
            columns(output, head, WIDTH).copy_(columns(output, 0, WIDTH))
    found = check_model(model)
    assert found.layers[0].not_found is None
    assert said(found) == [("duplicate-heads", 0, (0, 1, 2, 3), ALL)]
    assert [each.kind for each in found.remarks] == ["kv-heads-repeated"]


@pytest.mark.parametrize("kind", ["GPT2LMHeadModel", "GPTNeoXForCausalLM", "CodeGenForCausalLM"])
def test_a_head_of_a_fused_projection(kind: str) -> None:
    """Its three matrices lie in one weight, in the order of the family; the output's slices are in order."""
    model = family(kind).build()
    if kind == "GPTNeoXForCausalLM":
        attention = model.gpt_neox.layers[1].attention
        fused, output = attention.query_key_value.weight, attention.dense.weight.T
    elif kind == "CodeGenForCausalLM":
        attention = model.transformer.h[1].attn
        fused, output = attention.qkv_proj.weight, attention.out_proj.weight.T
    else:  # its Conv1D holds [in, out]
        attention = model.transformer.h[1].attn
        fused, output = attention.c_attn.weight.T, attention.c_proj.weight
    with torch.no_grad():
        if kind == "GPT2LMHeadModel":  # all queries, all keys, all values
            for begin in (0, 32, 64):
                fused[begin + 24 : begin + 32] = fused[begin + 8 : begin + 16]
        else:  # the three of a head together
            fused[72:96] = fused[24:48]
        output[24:32] = output[8:16]
    found = check_model(model)
    assert said(found) == [("duplicate-heads", 1, (1, 3), ALL)]


def test_a_head_of_cross_attention() -> None:
    model = family("BartForConditionalGeneration").build()
    attention = model.model.decoder.layers[2].encoder_attn
    with torch.no_grad():
        for linear in (attention.q_proj, attention.k_proj, attention.v_proj):
            copy_head(linear, 0, 1, WIDTH)
        columns(attention.out_proj, 1, WIDTH).copy_(columns(attention.out_proj, 0, WIDTH))
    found = check_model(model)
    assert said(found) == [("duplicate-heads", 2, (0, 1), ALL)]
    assert found.findings[0].layer_name == "model.decoder.layers.2.encoder_attn"
    assert {layer.kind for layer in found.layers} == {"self", "cross"}


def test_the_stacks_of_an_encoder_decoder_are_compared_too() -> None:
    model = family("BartForConditionalGeneration").build()
    encoder, decoder = model.model.encoder.layers[1].self_attn, model.model.decoder.layers[1].self_attn
    decoder_state = decoder.state_dict()
    encoder.load_state_dict(decoder_state)
    found = check_model(model)
    assert [(each.kind, each.layer_name) for each in found.findings] == [
        ("duplicate-layers", "model.encoder.layers.1.self_attn")
    ]
    assert "those of layer 1 (model.decoder.layers.1.self_attn)" in found.findings[0].words


def test_a_kv_head_that_a_model_writes_out_itself_is_one_head() -> None:
    """Query heads 0 and 1 read the first, 2 and 3 the second, though four arrive at the attention."""
    linear = torch.nn.Linear(5, 2 * WIDTH)
    layer = AttachedLayer(0, "attention", 4, 4, WIDTH, WIDTH, "self")
    weights = LayerWeights(layer, {"key": Source("key", linear, (0, 0, WIDTH, WIDTH), WIDTH)})
    assert weights.count("key") == 2
    assert [weights.number("key", head) for head in range(4)] == [0, 0, 1, 1]
    torch.testing.assert_close(weights.heads("key").flatten(0, 1), linear.weight)
    torch.testing.assert_close(weights.biases("key"), linear.bias.reshape(2, WIDTH))
