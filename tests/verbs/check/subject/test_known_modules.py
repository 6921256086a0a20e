"""The attention modules of torch, transformers and headwise, as they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional
from transformers import BertConfig, GPT2Config, GPTNeoXConfig, LlamaConfig, PretrainedConfig, ViTConfig
from transformers.models.bert.modeling_bert import BertAttention, BertSelfAttention
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXAttention
from transformers.models.llama.modeling_llama import LlamaAttention
from transformers.models.vit.modeling_vit import ViTAttention

import headwise as hw
from headwise.errors import UnsupportedError
from headwise.nn.compat import TorchMultiheadAttention
from headwise.verbs.check.asking import Form, Inputs

from .asking_it import attended, inputs_for, mapped, right_readings, subject
from .modules import D_MODEL, Fused


def eager(config: PretrainedConfig) -> PretrainedConfig:
    config._attn_implementation = "eager"
    return config


WIDTHS = {"hidden_size": 24, "num_attention_heads": 4}
LLAMA = {**WIDTHS, "num_key_value_heads": 2, "head_dim": 8}
MODULES: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "torch": (lambda: nn.MultiheadAttention(24, 4), "qbd"),
    "torch, batch first": (lambda: nn.MultiheadAttention(24, 4, batch_first=True), "bqd"),
    "torch, other inputs": (lambda: nn.MultiheadAttention(24, 4, kdim=7, vdim=9, batch_first=True), "bqd"),
    "stand-in": (lambda: TorchMultiheadAttention(24, 4), "qbd"),
    "headwise": (lambda: hw.MultiHeadAttention(23, 6, num_kv_heads=2, head_dim=5, value_head_dim=7), "bqd"),
    "llama": (lambda: LlamaAttention(eager(LlamaConfig(**LLAMA)), 0), "bqd"),
    "gpt2": (lambda: GPT2Attention(eager(GPT2Config(n_embd=24, n_head=4)), layer_idx=0), "bqd"),
    "gpt-neox": (lambda: GPTNeoXAttention(eager(GPTNeoXConfig(**WIDTHS)), 0), "bqd"),
    "bert": (lambda: BertSelfAttention(eager(BertConfig(**WIDTHS))), "bqd"),
    "vit": (lambda: ViTAttention(eager(ViTConfig(**WIDTHS))), "bqd"),
}


@pytest.mark.parametrize("name", MODULES)
def test_one_reading_of_their_weights_reproduces_what_they_answer(name: str) -> None:
    torch.manual_seed(4)
    make, axes = MODULES[name]
    found = subject(make())
    assert right_readings(found, axes=axes) == [0]
    assert found.axes == (axes if name.startswith(("torch", "stand-in")) else None)


@pytest.mark.parametrize("rope", [hw.Rope(), hw.Rope(base=500.0), None])
def test_positions_are_handed_over_as_they_are_declared(rope: hw.Rope | None) -> None:
    torch.manual_seed(4)
    found = subject(MODULES["llama"][0](), rope=rope)
    inputs, reading = inputs_for(found), found.projections()[0]
    query, key, value = (
        mapped(inputs.query.double(), one).unflatten(-1, (-1, 8)).transpose(1, 2)
        for one in (reading.query, reading.key, reading.value)
    )
    if rope is not None:
        query, key = rope.rotate(query, key)
    right = attended(Inputs(query, key, value), found.sizes).transpose(1, 2).flatten(2)
    answered = found.answer(inputs, axes="bqd").output.double()
    assert torch.allclose(answered, mapped(right, reading.output), atol=1e-5)


def test_torch_s_takes_masks_as_it_wants_them() -> None:
    found = subject(nn.MultiheadAttention(24, 4, batch_first=True))
    hidden = torch.rand(2, 1, 7, 11) > 0.6
    hidden[..., 0] = False
    with_mask = found.answer(inputs_for(found, mask=hidden), axes="bqd")
    by_head = found.answer(inputs_for(found, mask=hidden.expand(2, 4, 7, 11).flatten(0, 1)), axes="bqd")
    assert torch.equal(with_mask.output, by_head.output)
    assert with_mask.weights.shape == (2, 7, 11)
    assert torch.equal(with_mask.weights[hidden[:, 0]], torch.zeros(int(hidden.sum())))
    assert found.answer(inputs_for(found, need_weights=False), axes="bqd").weights is None


def test_bert_s_block_has_a_residual_and_a_norm_behind_its_attention() -> None:
    with pytest.raises(
        UnsupportedError, match=r"BertAttention changes what output.dense makes of its heads, as a r"
    ):
        subject(BertAttention(eager(BertConfig(**WIDTHS))))


def test_a_block_that_norms_its_rows_first_is_no_attention_alone() -> None:
    class Normed(Fused):
        def __init__(self) -> None:
            super().__init__("to_qkv", "to_out", per_head=False)
            self.norm = nn.LayerNorm(D_MODEL)

        def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
            return super().forward(self.norm(hidden_states))

    with pytest.raises(
        UnsupportedError, match=r"Normed changes its rows before to_qkv projects them, as a norm"
    ):
        subject(Normed())


def test_rows_in_another_order_and_random_ones_are_no_change() -> None:
    class Mixed(Fused):
        def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
            return super().forward(hidden_states.transpose(0, 1)).transpose(0, 1)

    class Dropping(Fused):
        def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
            return functional.dropout(super().forward(functional.dropout(hidden_states, 0.1)), 0.1)

    for kind in (Mixed, Dropping):
        assert subject(kind("to_qkv", "to_out", per_head=False)).form is Form.PROJECTED
