"""Attention that people run: torch's, transformers' and headwise's own is right or refused with a reason."""
# ruff: noqa: N812  # torch's own name for it

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers import (
    BertConfig,
    CLIPTextConfig,
    Gemma2Config,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
    T5Config,
    ViTConfig,
    WhisperConfig,
)
from transformers.models.bert.modeling_bert import BertSelfAttention
from transformers.models.bloom.modeling_bloom import BloomAttention, BloomConfig
from transformers.models.clip.modeling_clip import CLIPAttention
from transformers.models.gemma2.modeling_gemma2 import Gemma2Attention
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXAttention
from transformers.models.llama.modeling_llama import LlamaAttention
from transformers.models.mistral.modeling_mistral import MistralAttention
from transformers.models.qwen2.modeling_qwen2 import Qwen2Attention
from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention
from transformers.models.t5.modeling_t5 import T5Attention
from transformers.models.vit.modeling_vit import ViTAttention
from transformers.models.whisper.modeling_whisper import WhisperAttention

import headwise as hw
from headwise.errors import ArgumentError
from headwise.verbs.check import CheckResult, check

NAMES_OF_DROPOUT = {"attn_pdrop", "attention_probs_dropout_prob", "dropout_rate", "attention_dropout"}
GROUPED = {"hidden_size": 60, "num_attention_heads": 6, "num_key_value_heads": 2, "num_hidden_layers": 1}


def conventions(result: CheckResult) -> dict[str, str]:
    return {convention.name: convention.value for convention in result.conventions}


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", [nn.MultiheadAttention, hw.compat.TorchMultiheadAttention])
def test_torch_s_module_and_its_stand_in(kind: type[nn.MultiheadAttention], batch_first: bool) -> None:
    torch.manual_seed(0)
    result = check(kind(35, 5, batch_first=batch_first))
    assert result.is_right, result
    found = conventions(result)
    assert found["axes"] == ("[batch, tokens, width]" if batch_first else "[tokens, batch, width]")
    assert found["boolean mask"].startswith("True means ignore")
    assert found["padding mask"].startswith("True means ignore")


def test_dropout_tells_torch_s_module_from_its_stand_in() -> None:
    torch.manual_seed(0)
    torch_s, ours = (
        check(kind(35, 5, dropout=0.2)) for kind in (nn.MultiheadAttention, hw.compat.TorchMultiheadAttention)
    )
    # It returns what dropout left of the weights: pytorch issue 42929.
    assert torch_s.fault_names == ("weights-after-dropout",)
    assert ours.is_right, ours


def test_rows_that_see_no_key_tell_torch_s_module_from_its_stand_in() -> None:
    torch.manual_seed(0)
    empty = "rows that see no key"
    assert conventions(check(nn.MultiheadAttention(35, 5)))[empty] == "NaN"
    assert conventions(check(hw.compat.TorchMultiheadAttention(35, 5)))[empty] == "0"


def test_widths_of_key_and_value_of_their_own() -> None:
    torch.manual_seed(0)
    result = check(nn.MultiheadAttention(35, 5, kdim=13, vdim=17, batch_first=True))
    assert result.is_right, result


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_kv_heads": 2},
        {"num_kv_heads": 1, "bias": False},
        {"num_kv_heads": 3, "head_dim": 10, "value_head_dim": 7},
        {"dropout": 0.2},
        {"num_kv_heads": 2, "head_dim": 10, "rope": hw.Rope(pairing="interleaved")},
        {"window": 4, "softcap": 3.0},
    ],
    ids=lambda options: " ".join(options) or "plain",
)
def test_own_layer(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    declared = {name: options[name] for name in ("rope", "window", "softcap") if name in options}
    result = check(hw.MultiHeadAttention(66, 6, **options), **declared)
    assert result.is_right, result


@pytest.mark.parametrize(
    "function", [F.scaled_dot_product_attention, hw.attention], ids=["torch", "headwise"]
)
def test_functions_of_heads(function: Callable[..., Any]) -> None:
    result = check(function)
    assert result.is_right, result
    assert conventions(result)["boolean mask"].startswith("True means attend")
    assert conventions(result)["KV heads"] == "query head h reads KV head h // 3"


def test_decoding_tells_torch_s_function_from_ours() -> None:
    """torch aligns `is_causal` to the upper left: a query behind a cache sees the first key alone."""
    assert conventions(check(F.scaled_dot_product_attention))["causal alignment"] == "upper_left"
    assert check(F.scaled_dot_product_attention, causal="lower_right").fault_names == ("causal-upper-left",)


def test_self_attention_of_an_encoder_layer() -> None:
    torch.manual_seed(0)
    result = check(
        nn.TransformerEncoderLayer(35, 5, dim_feedforward=11, dropout=0.0, batch_first=True).self_attn
    )
    assert result.is_right, result


def made_by_transformers(kind: Callable[..., nn.Module], config: Any, *given: Any) -> nn.Module:
    config._attn_implementation = "eager"
    for name in NAMES_OF_DROPOUT & vars(config).keys():
        setattr(config, name, 0.0)  # the weights that are returned are those behind it
    torch.manual_seed(0)
    return kind(config, *given).eval()


FAMILIES: dict[str, tuple[Callable[[], nn.Module], dict[str, Any], dict[str, str]]] = {
    "bert": (
        lambda: made_by_transformers(BertSelfAttention, BertConfig(hidden_size=35, num_attention_heads=5)),
        {},
        {"causal": "no", "output projection": "none"},
    ),
    "gpt2": (
        lambda: made_by_transformers(GPT2Attention, GPT2Config(n_embd=35, n_head=5), False, 0),
        {},
        {},
    ),
    "llama": (
        lambda: made_by_transformers(LlamaAttention, LlamaConfig(**GROUPED), 0),
        {},
        {"KV heads": "query head h reads KV head h // 3"},
    ),
    "mistral": (lambda: made_by_transformers(MistralAttention, MistralConfig(**GROUPED), 0), {}, {}),
    "qwen2": (lambda: made_by_transformers(Qwen2Attention, Qwen2Config(**GROUPED), 0), {}, {}),
    "gemma2": (
        lambda: made_by_transformers(
            Gemma2Attention,
            Gemma2Config(**GROUPED, head_dim=10, query_pre_attn_scalar=10, attn_logit_softcapping=2.0),
            0,
        ),
        {"softcap": 2.0},
        {},
    ),
    "neox": (
        lambda: made_by_transformers(
            GPTNeoXAttention, GPTNeoXConfig(hidden_size=60, num_attention_heads=6), 0
        ),
        {},
        {"projections": "one, taken apart head by head"},
    ),
    "t5": (
        lambda: made_by_transformers(T5Attention, T5Config(d_model=33, d_kv=7, num_heads=3)),
        {"scale": 1.0},
        {},
    ),
    "vit": (
        lambda: made_by_transformers(ViTAttention, ViTConfig(hidden_size=35, num_attention_heads=5)),
        {},
        {},
    ),
    "clip": (
        lambda: made_by_transformers(CLIPAttention, CLIPTextConfig(hidden_size=35, num_attention_heads=5)),
        {},
        {},
    ),
    "whisper": (
        lambda: WhisperAttention(35, 5, config=WhisperConfig(d_model=35, attn_implementation="eager")),
        {},
        {},
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_of_a_family_of_transformers(family: str) -> None:
    make, declared, followed = FAMILIES[family]
    result = check(make(), **declared)
    assert result.is_right, result
    found = conventions(result)
    assert {name: found[name] for name in followed} == followed


def test_norms_of_query_and_key_are_no_known_fault() -> None:
    """Qwen3 norms the heads of query and key, which no convention of `check` covers: it says that."""
    result = check(made_by_transformers(Qwen3Attention, Qwen3Config(**GROUPED, head_dim=10), 0))
    assert not result.is_right
    assert result.explanations == ()
    assert result.nearest is not None


def test_an_argument_that_no_name_explains_is_refused() -> None:
    bloom = made_by_transformers(BloomAttention, BloomConfig(hidden_size=35, n_head=5), 0)
    with pytest.raises(
        ArgumentError, match="BloomAttention must be given residual, which check does not understand"
    ):
        check(bloom)
