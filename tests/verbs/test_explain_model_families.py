"""`explain` on small models of many families: whose logit is a sum, and what is said of the others."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headwise import reference
from headwise.errors import ArgumentError, UnsupportedError
from headwise.models.attachment.layer_call import LayerCall
from headwise.models.opening.opened_model import OpenedModel
from headwise.verbs.explain_model import explain_model
from headwise.verbs.explain_model.listening import HeardCall
from headwise.verbs.explain_model.one_head import head_row

from .explain_told import told
from .small_models import HYBRID, MARIAN, SIZES, TOKENS, eager, opened, small_model, word_tokenizer

WORDS = "the cat sat on a mat"
USUAL = {**SIZES, **TOKENS, "max_position_embeddings": 64}
GPT2 = {**TOKENS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
OPT = {
    **TOKENS, "hidden_size": 32, "ffn_dim": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 64, "word_embed_proj_dim": 32,
}  # fmt: skip
SINKS = {
    **USUAL, "num_key_value_heads": 2, "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2,
    "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 3,
}  # fmt: skip
GATED = {
    **USUAL, "num_key_value_heads": 2, "head_dim": 8, "layer_types": ["full_attention"] * 2,
    "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}  # fmt: skip
SUMS = {
    "LlamaForCausalLM": {**USUAL, "num_key_value_heads": 2, "attention_bias": True},
    "GPT2LMHeadModel": GPT2,
    "GPTNeoXForCausalLM": USUAL,
    "GemmaForCausalLM": {**USUAL, "num_key_value_heads": 1, "head_dim": 8},
    "CohereForCausalLM": USUAL,
    "OPTForCausalLM": OPT,
    "PhiForCausalLM": USUAL,
    "GptOssForCausalLM": SINKS,
}
NO_SUMS = {
    "Gemma2ForCausalLM": (
        {**USUAL, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 3},
        r"model\.layers\.0 is not the sum of what it reads, its attention and one other part",
    ),
    "GraniteForCausalLM": ({**USUAL, "residual_multiplier": 0.5}, r"model\.layers\.0 is not the sum"),
    "JambaForCausalLM": (HYBRID, "some of its blocks have no attention that is recorded"),
}


def small(kind: str, settings: dict[str, Any], folder: Path) -> OpenedModel:
    model = small_model(kind, settings)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 1:  # biases, sinks and the weights of norms would be all 0 or 1
                weight.normal_(1.0 if "norm" in name or "ln_" in name else 0.0, 0.3)
    return opened(model, folder, word_tokenizer(ends=False))


@pytest.mark.parametrize("kind", SUMS)
def test_families_whose_logit_is_a_sum(kind: str, tmp_path: Path) -> None:
    model = small(kind, SUMS[kind], tmp_path)
    found = explain_model(model, WORDS, layer=1, head=3, query=-2)
    assert found.position == 4
    assert found.row.output_difference < 1e-5
    assert found.sum_difference < 1e-5
    parts = found.logit
    assert parts is not None, found.no_logit
    assert abs(parts.difference) < 1e-5
    assert np.abs(parts.layers[1].heads).max() > 1e-3
    ids = torch.tensor([[token.id for token in found.tokens]])
    own = eager(model, input_ids=ids).logits[0, 4]
    assert found.next_tokens[0].id == int(own[: len(model.tokenizer)].argmax())
    assert found.next_tokens[0].logit == pytest.approx(float(own.max()), abs=1e-4)


@pytest.mark.parametrize("kind", NO_SUMS)
def test_families_whose_logit_is_no_sum_say_why_and_show_the_rest(kind: str, tmp_path: Path) -> None:
    settings, reason = NO_SUMS[kind]
    found = explain_model(small(kind, settings, tmp_path), WORDS, layer=1, head=3)
    assert found.sum_difference < 1e-5
    assert found.logit is None
    assert re.search(rf"^the logit of small-\w+ cannot be taken apart: .*{reason}", found.no_logit or "")
    assert len(found.next_tokens) == 5
    text = told(found)
    assert "5. The likeliest next tokens" in text
    assert "6. The logit, part by part\nLeft out: the logit of small-" in text


def test_a_learned_sink_takes_its_share(tmp_path: Path) -> None:
    found = explain_model(small("GptOssForCausalLM", SINKS, tmp_path), WORDS, layer=0, head=3)
    assert found.row.sink is not None
    assert found.row.sink > 0.01
    assert found.row.weights.sum() + found.row.sink == pytest.approx(1, abs=1e-12)
    assert found.row.visible.tolist() == [False, False, False, True, True, True], "a window of 3"
    assert (found.row.weights[:3] == 0).all()
    assert "A learned sink takes" in told(found)


def test_an_output_projection_that_cannot_be_found_is_said(tmp_path: Path) -> None:
    gated = small("Qwen3NextForCausalLM", GATED, tmp_path)
    with pytest.raises(
        UnsupportedError,
        match=r"^the output projection of layer 1 \(model\.layers\.1\.self_attn\) of small-qwen3_next was "
        r"not found: no linear layer reads the outputs of its heads as they are",
    ):
        explain_model(gated, WORDS, layer=1, head=0)


def test_an_encoder_decoder_is_sent_to_view(tmp_path: Path) -> None:
    model = opened(small_model("MarianMTModel", MARIAN), tmp_path, word_tokenizer(ends=True))
    with pytest.raises(UnsupportedError, match=r"^small-marian is an encoder-decoder, .*; use view to see"):
        explain_model(model, WORDS, layer=0, head=0)


def test_layers_with_gaps_are_listed(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"^layer=0 .*; the attention layers of small-jamba are 1, 3$"):
        explain_model(small("JambaForCausalLM", HYBRID, tmp_path), WORDS, layer=0, head=0)


@pytest.mark.parametrize("shape", [(1, 4, 7, 11), (1, 1, 7, 11), (1, 4, 1, 11), (1, 1, 1, 11)])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_a_row_with_every_term_is_that_of_the_definition(
    shape: tuple[int, ...], softcap: float | None
) -> None:
    torch.manual_seed(5)
    query, key, value = (torch.randn(1, heads, rows, 5) for heads, rows in ((4, 7), (2, 11), (2, 11)))
    terms = {
        "mask": torch.rand(shape) > 0.4,
        "bias": torch.randn(shape),
        "scale": 0.7,
        "softcap": softcap,
        "sinks": torch.randn(4),
    }
    call = LayerCall(query, key, value, **terms, dropout=0.0)
    expected = reference.attention(query, key, value, **terms)
    for head, position in ((0, 0), (1, 6), (3, 2)):
        heard = HeardCall(call, torch.from_numpy(expected.output))
        row = head_row(heard, head=head, kv_head=head // 2, position=position)
        np.testing.assert_allclose(row.weights, expected.weights[0, head, position], rtol=0, atol=1e-7)
        assert row.output_difference < 1e-6
