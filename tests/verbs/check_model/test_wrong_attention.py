"""An attention function with a fault is found at its layer, whichever fault, and no sound one is accused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.models.llama import modeling_llama

from headwise import reference
from headwise.models.attachment.layer_call import LayerCall
from headwise.verbs.check_model import check_model
from headwise.verbs.check_model.against_reference import ROWS, hold

from ...models.attachment.families import family
from .changing import said, told

RIGHT = modeling_llama.eager_attention_forward
SCALE = 8**-0.5


def scale_missing(module: Any, *given: Any, **options: Any) -> Any:
    return RIGHT(module, *given, **{**options, "scaling": 1.0})


def mask_missing(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, **options: Any) -> Any:
    return RIGHT(module, query, key, value, torch.zeros_like(mask), **options)


def kv_heads_tiled(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, **options: Any
) -> Any:
    order = [0, 2, 1, 3]
    output, weights = RIGHT(module, query[:, order], key, value, mask, **options)
    return output[:, :, order], weights


def values_shifted(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, **options: Any
) -> Any:
    return RIGHT(module, query, key, value.roll(1, dims=2), mask, **options)


def a_little_off(module: Any, *given: Any, **options: Any) -> Any:
    output, weights = RIGHT(module, *given, **options)
    return output * (1 + 5e-6), weights


def not_a_number(module: Any, *given: Any, **options: Any) -> Any:
    output, weights = RIGHT(module, *given, **options)
    return torch.where(torch.arange(output.shape[1])[:, None, None] == 3, torch.nan, output), weights


def key_written_over(module: Any, query: Tensor, key: Tensor, *given: Any, **options: Any) -> Any:
    key.mul_(1.5)  # also in what the layer holds: what was handed over is what counts
    return RIGHT(module, query, key, *given, **options)


FAULTS = (
    scale_missing,
    mask_missing,
    kv_heads_tiled,
    values_shifted,
    a_little_off,
    not_a_number,
    key_written_over,
)


@pytest.fixture
def model() -> PreTrainedModel:
    model = family("LlamaForCausalLM").build(num_hidden_layers=3)
    model.set_attn_implementation("eager")
    return model


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_at_its_layer(
    fault: Any, model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_layer_1(module: Any, *given: Any, **options: Any) -> Any:
        return (fault if module.layer_idx == 1 else RIGHT)(module, *given, **options)

    monkeypatch.setattr(modeling_llama, "eager_attention_forward", in_layer_1)
    found = check_model(model)
    wrong = found.findings
    assert [each.layer for each in wrong] == [1]
    assert [layer.is_right for layer in found.layers] == [True, False, True]
    assert wrong[0].kind == "attention-differs"
    assert "its attention (eager) is off by" in wrong[0].words
    assert "headwise check FILE.py:NAME" in wrong[0].mend
    assert "wrong" in told(found)
    if fault is kv_heads_tiled:
        assert [place.head for place in wrong[0].heads] == [1, 2], "the first and the last are read rightly"


def test_without_a_fault_nothing_is_said(model: PreTrainedModel) -> None:
    found = check_model(model)
    assert not said(found)
    assert found.implementation == "eager"


def call_of(dtype: torch.dtype = torch.float32, rows: int = 11, **terms: Any) -> LayerCall:
    torch.manual_seed(5)
    query, key, value = (
        torch.randn(2, heads, length, 7).to(dtype) for heads, length in ((4, rows), (2, 13), (2, 13))
    )
    none = dict.fromkeys(("mask", "bias", "scale", "softcap", "sinks"))
    return LayerCall(query, key, value, **{**none, **terms}, dropout=0.0)


TERMS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "mask": {"mask": torch.ones(11, 13, dtype=torch.bool).tril(2)[None, None]},
    "mask of rows": {"mask": (torch.arange(13) < 9)[None, None, None]},
    "bias": {"bias": 3 * torch.randn(1, 4, 11, 13, generator=torch.Generator().manual_seed(3))},
    "scale": {"scale": 0.9},
    "softcap": {"softcap": 1.3},
    "sinks": {"sinks": torch.tensor([0.5, -1.0, 2.0, 0.0])},
}


@pytest.mark.parametrize("name", TERMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_is_rounded_from_the_definition_is_right_and_what_leaves_a_term_out_is_not(
    name: str, dtype: torch.dtype
) -> None:
    terms = TERMS[name]
    exact = torch.from_numpy(
        reference.attention(*(each.double() for each in call_of(dtype)[:3]), **terms).output
    )
    held = hold(call_of(dtype, **terms), exact.to(dtype))
    assert held.is_right
    assert not held.wrong_heads
    assert held.rows == 2 * 11
    assert held.largest == pytest.approx(float(exact.abs().max()))
    if terms:
        assert not hold(call_of(dtype), exact.to(dtype)).is_right


def test_a_row_that_sees_no_key_is_left_out() -> None:
    mask = torch.ones(1, 1, 11, 13, dtype=torch.bool)
    mask[:, :, 4] = False
    call = call_of(mask=mask)
    exact = torch.from_numpy(reference.attention(*call[:3], mask=mask.numpy()).output)
    exact[:, :, 4] = torch.nan
    held = hold(call, exact.float())
    assert held.is_right
    assert held.rows == 2 * 10


def test_of_a_long_text_some_rows_are_held() -> None:
    call = call_of(rows=131)
    exact = torch.from_numpy(reference.attention(*call[:3]).output).float()
    assert hold(call, exact).rows == 2 * ROWS
    for row in (0, 130):
        wrong = exact.clone()
        wrong[1, 2, row, 3] += 1e-3
        held = hold(call, wrong)
        assert held.wrong_heads == (2,)
        assert held.error == pytest.approx(1e-3, rel=0.01)


def test_a_layer_that_is_given_nan_is_not_judged() -> None:
    model = family("LlamaForCausalLM").build(num_hidden_layers=4)
    with torch.no_grad():  # finite, and too large for what is done with it
        model.model.layers[1].mlp.down_proj.weight.fill_(3e38)
    found = check_model(model)
    assert said(found) == [("non-finite-input", 2, (), ())]
    assert found.findings[0].words.endswith("though its weights are not, as 1 layer behind it are")
    assert [layer.is_finite for layer in found.layers] == [True, True, False, False]
    assert "given NaN" in told(found)
