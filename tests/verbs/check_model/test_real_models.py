"""`check` on real models: sound as they are, and each planted fault is found and nothing else."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch

from headwise.models.opening.opened_model import OpenedModel
from headwise.verbs.check_model import HeadPlace, check_model

from .changing import columns, copy_head, put_back, rows, said, told

ALL = ("query", "key", "value", "output")
LAYERS = 7


@pytest.fixture(scope="module")
def few_layers(smollm2: OpenedModel) -> OpenedModel:
    """The first layers of SmolLM2, with weights of its own: faults can be planted there, and it is quick."""
    config = copy.deepcopy(smollm2.model.config)
    config.num_hidden_layers = LAYERS
    config.layer_types = None
    model = type(smollm2.model)(config).eval()
    kept = model.state_dict().keys()
    model.load_state_dict(
        {name: weight for name, weight in smollm2.model.state_dict().items() if name in kept}
    )
    return dataclasses.replace(smollm2, model=model)


def test_smollm2_is_right(smollm2: OpenedModel) -> None:
    found = check_model(smollm2)
    assert found.is_right
    assert not found.findings
    assert not found.remarks
    assert found.text == "The bank raised rates because inflation was rising"
    assert [layer.layer for layer in found.layers] == list(range(30))
    for layer in found.layers:
        assert (layer.num_heads, layer.num_kv_heads, layer.head_dim) == (9, 3, 64)
        assert 0 < layer.error <= layer.allowed < 1e-5 * layer.largest
        assert layer.rows == found.num_tokens
        assert layer.not_found is None
        assert [layer.projections[matrix] for matrix in ALL] == [
            f"{layer.name}.{letter}_proj" for letter in "qkvo"
        ]


def test_minilm_is_right(minilm: OpenedModel) -> None:
    found = check_model(minilm, text="A cat sat on the mat and looked at the bank of the river.")
    assert found.is_right
    assert not found.remarks
    assert [layer.num_heads for layer in found.layers] == [12] * 6
    assert all(layer.not_found is None for layer in found.layers)
    assert found.layers[0].projections["output"] == "encoder.layer.0.attention.output.dense"
    assert "minilm-l6: nothing wrong was found" in told(found)


def test_a_head_copied_in_minilm_is_exactly_the_pair_that_is_found(minilm: OpenedModel) -> None:
    own, output = (
        minilm.model.encoder.layer[4].attention.self,
        minilm.model.encoder.layer[4].attention.output,
    )
    with put_back(own, output):
        for linear in (own.query, own.key, own.value):
            copy_head(linear, 3, 10, 32)
        columns(output.dense, 10, 32).copy_(columns(output.dense, 3, 32).clone())
        found = check_model(minilm)
    assert said(found) == [("duplicate-heads", 4, (3, 10), ALL)]
    finding = found.findings[0]
    assert finding.heads == tuple(HeadPlace(4, "encoder.layer.4.attention.self", head) for head in (3, 10))
    assert finding.words == (
        "heads 3 and 10 are copies of each other: the same W_Q and its bias, W_K and its bias, W_V and its "
        "bias and W_O"
    )
    assert finding.numbers["query_factor"] == 1
    assert finding.numbers["output_difference"] == 0
    assert check_model(minilm).is_right, "the weights were put back"


def test_one_shared_matrix_of_minilm_is_named(minilm: OpenedModel) -> None:
    """The later head holds the original here: it is the other way round that the copy was made."""
    own = minilm.model.encoder.layer[1].attention.self
    with put_back(own):
        copy_head(own.value, 11, 2, 32)
        found = check_model(minilm)
    assert said(found) == [("shared-weights", 1, (2, 11), ("value",))]
    assert found.findings[0].words == "heads 2 and 11 have the same W_V and its bias"


def test_a_head_copied_inside_a_group_of_smollm2(few_layers: OpenedModel) -> None:
    attention = few_layers.model.model.layers[3].self_attn
    with put_back(attention):
        copy_head(attention.q_proj, 3, 5, 64)
        columns(attention.o_proj, 5, 64).copy_(columns(attention.o_proj, 3, 64).clone())
        found = check_model(few_layers)
    assert said(found) == [("duplicate-heads", 3, (3, 5), ("query", "output"))]
    assert found.findings[0].words == (
        "heads 3 and 5 are copies of each other: the same W_Q and W_O; W_K and W_V they share as heads of "
        "one group"
    )


def test_a_head_copied_across_groups_of_smollm2(few_layers: OpenedModel) -> None:
    attention = few_layers.model.model.layers[3].self_attn
    with put_back(attention):
        copy_head(attention.q_proj, 1, 8, 64)
        copy_head(attention.k_proj, 0, 2, 64)
        copy_head(attention.v_proj, 0, 2, 64)
        columns(attention.o_proj, 8, 64).copy_(-0.5 * columns(attention.o_proj, 1, 64))
        found = check_model(few_layers)
    assert said(found) == [("duplicate-heads", 3, (1, 8), ALL)]
    assert found.findings[0].words == (
        "heads 1 and 8 are copies of each other: the same W_Q, W_K, W_V and W_O (times -0.5)"
    )
    assert found.findings[0].numbers["output_factor"] == pytest.approx(-0.5)


def test_a_query_copied_across_groups_of_smollm2_shares_the_query_alone(few_layers: OpenedModel) -> None:
    attention = few_layers.model.model.layers[0].self_attn
    with put_back(attention):
        copy_head(attention.q_proj, 0, 3, 64)
        found = check_model(few_layers)
    assert said(found) == [("shared-weights", 0, (0, 3), ("query",))]


def test_kv_heads_copied_in_smollm2(few_layers: OpenedModel) -> None:
    attention = few_layers.model.model.layers[2].self_attn
    with put_back(attention):
        copy_head(attention.k_proj, 1, 2, 64)
        copy_head(attention.v_proj, 1, 2, 64)
        found = check_model(few_layers)
    assert said(found) == [("duplicate-kv-heads", 2, (), ("key", "value"))]
    assert [place.head for place in found.findings[0].kv_heads] == [1, 2]


def test_a_head_copied_into_another_layer_in_16_bits(few_layers: OpenedModel) -> None:
    first, other = (few_layers.model.model.layers[layer].self_attn for layer in (1, 6))
    with put_back(other):
        rows(other.q_proj, 6, 64).copy_(rows(first.q_proj, 2, 64).bfloat16().float())
        found = check_model(few_layers)
    assert said(found) == [("shared-weights", 1, (2, 6), ("query",))]
    assert [place.layer for place in found.findings[0].heads] == [1, 6]
    assert found.findings[0].words.startswith(
        "head 2 of layer 1 and head 6 of layer 6 have the same W_Q (up to 0."
    )
    assert 1e-4 < found.findings[0].numbers["query_difference"] < 3e-3


def test_a_slice_of_the_output_projection_at_zero_is_exactly_that_dead_head(few_layers: OpenedModel) -> None:
    attention = few_layers.model.model.layers[5].self_attn
    with put_back(attention):
        columns(attention.o_proj, 4, 64).zero_()
        found = check_model(few_layers)
    assert said(found) == [("dead-output", 5, (4,), ("output",))]
    assert found.findings[0].words == (
        "W_O of head 4 is zero: nothing of what it does is written to the output"
    )


def test_a_layer_stacked_twice_is_one_finding(few_layers: OpenedModel) -> None:
    first, second = (few_layers.model.model.layers[layer].self_attn for layer in (2, 3))
    with put_back(second):
        second.load_state_dict(first.state_dict())
        found = check_model(few_layers)
    assert [(each.kind, each.layer) for each in found.findings] == [("duplicate-layers", 2)]
    assert found.findings[0].words == (
        "all 9 heads are those of layer 3 (model.layers.3.self_attn), number by number"
    )
    assert len(found.findings[0].heads) == 18


def test_a_fault_in_the_attention_function_is_found_at_its_layer(
    few_layers: OpenedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.models.llama import modeling_llama  # noqa: PLC0415 (slow)

    right = modeling_llama.eager_attention_forward

    def without_scale(module, *given, scaling, **options):
        scaling = 1.0 if module.layer_idx == 4 else scaling
        return right(module, *given, scaling=scaling, **options)

    def one_head_turned(module, *given, **options):
        output, weights = right(module, *given, **options)
        if module.layer_idx == 6:
            output[:, :, 7] = output[:, :, 7].roll(1, dims=-1)
        return output, weights

    before = few_layers.model.config._attn_implementation
    few_layers.model.set_attn_implementation("eager")
    try:
        assert check_model(few_layers).is_right
        monkeypatch.setattr(modeling_llama, "eager_attention_forward", without_scale)
        found = check_model(few_layers)
        # Head 0 may look at one key alone whatever the scale, so that not every head need be off.
        assert [(each.kind, each.layer) for each in found.findings] == [("attention-differs", 4)]
        assert [layer.layer for layer in found.layers if not layer.is_right] == [4]
        assert found.findings[0].numbers["error"] > 1e3 * found.findings[0].numbers["allowed"]
        monkeypatch.setattr(modeling_llama, "eager_attention_forward", one_head_turned)
        assert said(check_model(few_layers)) == [("attention-differs", 6, (7,), ())]
    finally:
        few_layers.model.set_attn_implementation(before)


def test_the_model_is_left_as_it_was(minilm: OpenedModel) -> None:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS  # noqa: PLC0415 (slow)

    before = {name: weight.clone() for name, weight in minilm.model.state_dict().items()}
    # transformers leaves hooks of its own where outputs were once asked for.
    hooks = [list(module._forward_hooks) for module in minilm.model.modules()]
    minilm.model.train()
    check_model(minilm)
    assert minilm.model.training
    minilm.model.eval()
    assert "get_interface" not in vars(ALL_ATTENTION_FUNCTIONS)
    assert [list(module._forward_hooks) for module in minilm.model.modules()] == hooks
    assert all(torch.equal(before[name], weight) for name, weight in minilm.model.state_dict().items())
