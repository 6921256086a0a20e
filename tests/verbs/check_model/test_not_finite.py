"""Weights that are NaN or infinite."""

from __future__ import annotations

import json

import pytest
import torch

from headwise.verbs.check_model import check_model
from headwise.verbs.check_model.render_json import to_json

from ...models.attachment.families import family
from .changing import columns, rows, told

WIDTH = 8


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_its_head_and_matrix_are_named_and_the_rest_is_examined(bad: float) -> None:
    model = family("LlamaForCausalLM").build()
    attention = model.model.layers[0].self_attn
    with torch.no_grad():
        rows(attention.q_proj, 2, WIDTH)[1, 3] = bad
        rows(attention.q_proj, 2, WIDTH)[4, 5] = bad
        columns(model.model.layers[1].self_attn.o_proj, 1, WIDTH).zero_()
    found = check_model(model)
    assert [(each.kind, each.layer) for each in found.findings] == [
        ("non-finite-weights", 0),
        ("dead-output", 1),
    ]
    finding = found.findings[0]
    assert finding.words == (
        "model.layers.0.self_attn.q_proj.weight has 2 entries that are NaN or infinite, in head 2 of W_Q"
    )
    assert [place.head for place in finding.heads] == [2]
    assert finding.matrices == ("query",)
    assert finding.numbers["count"] == 2
    kept = rows(attention.q_proj, 2, WIDTH)
    assert not kept[1, 3].isfinite(), "it is put back"
    assert int((~kept.isfinite()).sum()) == 2
    json.dumps(to_json(found), allow_nan=False)
    assert "non-finite-weights  layer 0 (model.layers.0.self_attn): " in told(found)


def test_kv_heads_and_slices_of_the_output_are_told_apart() -> None:
    model = family("LlamaForCausalLM").build()
    attention = model.model.layers[1].self_attn
    with torch.no_grad():
        rows(attention.v_proj, 1, WIDTH)[0, 0] = torch.nan
        columns(attention.o_proj, 3, WIDTH)[5, 2] = torch.inf
    found = check_model(model)
    value, output = found.findings
    assert value.words == (
        "model.layers.1.self_attn.v_proj.weight has 1 entry that is NaN or infinite, in KV head 1 of W_V"
    )
    assert [place.head for place in value.kv_heads] == [1]
    assert output.words.endswith("in head 3 of W_O")
    assert not output.kv_heads


def test_a_fused_weight_and_a_bias() -> None:
    model = family("GPT2LMHeadModel").build()
    attention = model.transformer.h[0].attn
    with torch.no_grad():
        attention.c_attn.weight[3, 32 + 9] = torch.nan  # [in, out]: the key of head 1
        attention.c_attn.bias[64 + 30] = torch.nan  # the value of head 3
    by_name = {each.words.split(" ")[0]: each for each in check_model(model).findings}
    weight = by_name["transformer.h.0.attn.c_attn.weight"]
    assert (weight.matrices, [place.head for place in weight.kv_heads]) == (("key",), [1])
    bias = by_name["transformer.h.0.attn.c_attn.bias"]
    assert (bias.matrices, [place.head for place in bias.kv_heads]) == (("value",), [3])


def test_outside_the_attention_it_is_said_without_a_layer() -> None:
    model = family("LlamaForCausalLM").build()
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[0, 0] = torch.nan
    found = check_model(model)
    assert [(each.kind, each.layer, each.heads) for each in found.findings] == [
        ("non-finite-weights", None, ())
    ]
    assert found.findings[0].words.startswith("model.layers.1.mlp.up_proj.weight has 1 entry")
    assert "non-finite-weights  model.layers.1.mlp" in told(found)


def test_numbers_too_large_to_be_summed_are_no_infinities() -> None:
    model = family("LlamaForCausalLM").build()
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[:2] = 3e38
        model.model.layers[1].mlp.up_proj.weight.zero_()  # so that nothing comes of it
    assert check_model(model).is_right
