"""`check` on small models of many families: no false alarm, the right projections, and honest refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import PreTrainedModel

from headwise.errors import UnsupportedError
from headwise.models.attachment.layer_call import LayerCall
from headwise.verbs.check_model import check_model
from headwise.verbs.check_model.listening import hear, weight_of
from headwise.verbs.check_model.own_attention import hearing_calls
from headwise.verbs.check_model.reading import candidates

from ...models.attachment.families import FAMILIES, Family, family
from ..small_models import opened

EQUAL = [each for each in FAMILIES if each.refused is None]
REFUSED = [each for each in FAMILIES if each.refused is not None]
NOT_FOUND = {"DeepseekV3ForCausalLM": "W_K", "Qwen3NextForCausalLM": "W_O"}
FUSED = ("GPT2LMHeadModel", "GPTNeoXForCausalLM", "CodeGenForCausalLM", "Phi3ForCausalLM", "ModernBertModel")
NORMED = ("Qwen3ForCausalLM", "Olmo2ForCausalLM", "Gemma3ForCausalLM", "Llama4ForCausalLM")
TURNED = (
    "LlamaForCausalLM",
    "PhiForCausalLM",
    "GPTJForCausalLM",
    "CohereForCausalLM",
    "DeepseekV3ForCausalLM",
)
OTHERS = ("BertModel", "T5ForConditionalGeneration", "OPTForCausalLM", "ViTModel")


def by_kind(given: Family) -> str:
    return given.kind


@pytest.mark.parametrize("given", EQUAL, ids=by_kind)
def test_a_sound_model_is_not_accused(given: Family) -> None:
    found = check_model(given.build())
    assert not found.findings
    assert tuple(layer.layer for layer in found.layers) == given.layers
    assert len(found.unseen) == given.unseen
    assert all(layer.error > 0 for layer in found.layers)
    for layer in found.layers:
        missing = NOT_FOUND.get(given.kind)
        assert (layer.not_found is None) == (missing is None)
        if missing is not None:
            assert layer.not_found.startswith(f"{missing}: no linear layer makes, or reads, these heads")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize(
    "kind", ["Qwen3ForCausalLM", "GPTNeoXForCausalLM", "WhisperModel", "BeitModel", "GPTJForCausalLM"]
)
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_so_is_none_in_another_dtype(kind: str, implementation: str, dtype: torch.dtype) -> None:
    model = family(kind).build().to(dtype)
    model.set_attn_implementation(implementation)
    found = check_model(model)
    assert not found.findings
    assert found.dtype == str(dtype).removeprefix("torch.")
    assert all(layer.not_found is None for layer in found.layers)


@pytest.mark.parametrize("given", REFUSED, ids=by_kind)
def test_a_family_that_bypasses_the_interface_is_refused_with_the_reason(given: Family) -> None:
    with pytest.raises(UnsupportedError, match="never called the attention function"):
        check_model(given.build())


def queries_keys_values(model: PreTrainedModel, inputs: dict[str, Any]) -> list[LayerCall]:
    calls: list[LayerCall] = []

    def on_call(module: nn.Module, call: LayerCall, run: Any) -> Any:
        calls.append(call)
        return run()

    with torch.no_grad(), hearing_calls(model, on_call):
        model(**inputs)
    return calls


@pytest.mark.parametrize("kind", [*FUSED, *NORMED, *TURNED, *OTHERS])
def test_the_rows_that_are_found_make_that_head_and_no_other(kind: str) -> None:
    """What the search says is held against what a change of those very weights does to the call."""
    model = family(kind).build()
    with torch.no_grad():  # where all heads have one length only the first row tells them apart
        for name, weight in model.named_parameters():
            if "norm" in name and weight.ndim == 1:
                weight.normal_(1.0, 0.3)
    given = next(candidates(opened(model, None, None), text=None, seed=3)).inputs
    heard = hear(model, given, lambda count: None)
    before = queries_keys_values(model, given)
    for matrix in ("query", "key", "value"):
        source = heard.calls[0].sources.get(matrix)
        if source is None:
            assert (kind, matrix) == ("DeepseekV3ForCausalLM", "key")
            continue
        for head, begin in enumerate(source.begins):
            weight = weight_of(source.module)
            kept = weight.clone()
            weight[begin : begin + source.width] *= 1 + torch.arange(source.width)[:, None] / source.width
            after = queries_keys_values(model, given)[0]
            weight.copy_(kept)
            changed = (getattr(after, matrix) != getattr(before[0], matrix)).flatten(2).any(-1).any(0)
            if kind == "Olmo2ForCausalLM" and matrix != "value":  # a norm over all heads moves them all
                change = (getattr(after, matrix) / getattr(before[0], matrix) - 1).abs().flatten(2)
                changed = change.amax(-1)[0] == change.amax()
            assert torch.nonzero(changed).flatten().tolist() == [head], (matrix, head)


def test_sinks_softcap_bias_and_window_are_part_of_what_is_held() -> None:
    """Each is there, so that leaving it out of the definition would be seen."""
    terms = {
        "GptOssForCausalLM": "sinks",
        "Gemma2ForCausalLM": "softcap",
        "T5ForConditionalGeneration": "bias",
        "MistralForCausalLM": "mask",
    }
    for kind, term in terms.items():
        model = family(kind).build()
        inputs = next(candidates(opened(model, None, None), text=None, seed=0)).inputs
        assert getattr(queries_keys_values(model, inputs)[0], term) is not None
        assert check_model(model).is_right


def test_shared_layers_are_examined_once() -> None:
    found = check_model(family("AlbertModel").build())
    assert len(found.layers) == 3
    assert len({layer.name for layer in found.layers}) == 1
    assert not found.remarks


def test_layers_that_hold_the_same_parameters_are_remarked() -> None:
    model = family("LlamaForCausalLM").build(num_hidden_layers=3)
    attention = [layer.self_attn for layer in model.model.layers]
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        getattr(attention[2], name).weight = getattr(attention[0], name).weight
    found = check_model(model)
    assert found.is_right
    assert [(each.kind, each.words) for each in found.remarks] == [
        ("tied-layers", "model.layers.2.self_attn holds the same parameters as model.layers.0.self_attn")
    ]


def test_the_units_of_heads_need_not_be_their_width() -> None:
    """DeepSeek's query is wider than its value, and its keys and values stand together head by head."""
    model = family("DeepseekV3ForCausalLM").build()
    given = next(candidates(opened(model, None, None), text=None, seed=0)).inputs
    source = hear(model, given, lambda count: None).calls[0].sources["value"]
    config = model.config
    both = config.qk_nope_head_dim + config.v_head_dim
    assert source.begins == tuple(head * both + config.qk_nope_head_dim for head in range(4))
