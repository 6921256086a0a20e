"""What is printed, and what is said of weights that cannot be examined."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.models.llama import modeling_llama

from headwise.models.opening.opened_model import OpenedModel
from headwise.verbs.check_model import check_model
from headwise.verbs.check_model.render_json import to_json

from ...models.attachment.families import family
from .changing import columns, told

WIDTH = 8


class PackedLinear(nn.Linear):
    """A linear layer whose weight is kept in 8 bits, as quantised models keep theirs."""

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__(plain.in_features, plain.out_features, bias=False)
        weight = plain.weight.detach()
        self.step = float(weight.abs().max()) / 127
        packed = (weight / self.step).round().to(torch.int8)
        self.weight = nn.Parameter(packed, requires_grad=False)

    def forward(self, given: Tensor) -> Tensor:
        return nn.functional.linear(given, self.weight.float() * self.step)


def test_weights_that_are_packed_are_not_compared_and_that_is_said() -> None:
    model = family("LlamaForCausalLM").build()
    attention = model.model.layers[1].self_attn
    attention.q_proj, attention.o_proj = PackedLinear(attention.q_proj), PackedLinear(attention.o_proj)
    found = check_model(model)
    assert found.is_right
    assert found.layers[0].not_found is None
    assert found.layers[1].not_found == (
        "W_Q and W_O are packed and hold no floats, so that heads cannot be compared"
    )
    assert "Not examined\nmodel.layers.1.self_attn: W_Q and W_O are packed" in told(found)


def test_what_is_left_out_is_named_once_for_all_layers() -> None:
    text = told(check_model(family("Qwen3NextForCausalLM").build()))
    assert text.count("no linear layer makes, or reads, these heads as they are") == 1
    assert text.count("computes no softmax attention") == 3


def test_of_many_layers_those_nearest_to_what_is_allowed_are_shown(smollm2: OpenedModel) -> None:
    found = check_model(smollm2)
    text = told(found)
    assert "The 12 of 30 layers that come nearest to what is allowed; --json has all." in text
    nearest = sorted(found.layers, key=lambda layer: layer.error / layer.allowed)[-12:]
    shown = [line.split()[0] for line in text.splitlines() if ".self_attn" in line]
    assert shown == [str(layer.layer) for layer in sorted(nearest, key=lambda layer: layer.layer)]
    assert text.count(" 9/3 ") == 12


def test_the_same_in_layers_of_one_number_is_told_with_their_paths() -> None:
    model = family("BartForConditionalGeneration").build()
    with torch.no_grad():
        for stack in (model.model.encoder, model.model.decoder):
            columns(stack.layers[1].self_attn.out_proj, 2, WIDTH).zero_()
    text = told(check_model(model), width=200)
    assert "2 findings" in text
    both = "model.encoder.layers.1.self_attn, model.decoder.layers.1.self_attn"
    assert f"dead-output  {both}: W_O of head 2 is zero" in text


def test_an_error_without_end_is_null_in_json(monkeypatch: pytest.MonkeyPatch) -> None:
    right = modeling_llama.eager_attention_forward

    def infinite(module: Any, *given: Any, **options: Any) -> Any:
        output, weights = right(module, *given, **options)
        return output.index_fill(2, torch.tensor([1]), torch.inf), weights

    model = family("LlamaForCausalLM").build()
    model.set_attn_implementation("eager")
    monkeypatch.setattr(modeling_llama, "eager_attention_forward", infinite)
    document = json.loads(json.dumps(to_json(check_model(model)), allow_nan=False))
    assert document["layers"][0]["error"] is None
    assert document["layers"][0]["is_right"] is False
    assert document["findings"][0]["numbers"]["error"] is None
    assert [place["head"] for place in document["findings"][0]["heads"]] == [1]
