"""Adapters beside `q_proj` and `v_proj`: they alone learn, and merging them changes no output."""

import copy
import re
from collections.abc import Callable

import peft
import pytest
import torch
from gpt import CONTEXT, D_MODEL, GPT, LAYERS, TEXT, encode, train
from lora import CODE, LoRA, adapt, merge
from torch import Tensor, nn

import headwise as hw

from ..tolerance import assert_within_rule

ADAPTERS = LAYERS * 2 * 4 * (D_MODEL + D_MODEL)


def taught(model: nn.Module) -> None:
    """Let the adapters learn, so that they add something."""
    train(model, encode(CODE), steps=3, seed=1)


def logits(model: nn.Module) -> Tensor:
    with torch.no_grad():
        return model(encode(CODE[:CONTEXT])[None])


def test_it_learns_another_text_by_a_hundredth_of_the_parameters(run: Callable[..., str]) -> None:
    printed = run("lora.py", "--steps", "50")
    adapters, total = re.search(r"learning (\S+) of (\S+) parameters", printed).groups()
    before, after = map(float, re.search(r"source code (\S+), adapted (\S+)", printed).groups())
    size, moved = map(float, re.search(r"logits up to (\S+) moved by (\S+) at most", printed).groups())
    assert int(adapters.replace(",", "")) == ADAPTERS < int(total.replace(",", "")) / 50
    assert after < before - 0.1
    assert moved < 1e-5 * size


def test_only_adapters_learn_and_they_start_with_nothing() -> None:
    model = GPT()
    before, given = copy.deepcopy(model.state_dict()), logits(model)
    adapt(model)
    assert torch.equal(logits(model), given)
    taught(model)
    now = {name.replace(".linear.", "."): value for name, value in model.state_dict().items()}
    assert all(torch.equal(now.pop(name), value) for name, value in before.items())
    assert {name.rsplit(".", 3)[1] for name in now} == {"q_proj", "v_proj"}
    assert sum(value.numel() for value in now.values()) == ADAPTERS
    assert all(module.up.weight.abs().max() > 0 for module in model.modules() if isinstance(module, LoRA))
    assert (logits(model) - given).abs().max() > 1e-3


def test_merged_adapters_give_the_same_outputs_from_a_plain_gpt() -> None:
    model = GPT()
    adapt(model)
    taught(model)
    exact, adapted = logits(copy.deepcopy(model).double()), logits(model)
    merge(model)
    assert not any(isinstance(module, LoRA) for module in model.modules())
    assert model.state_dict().keys() == GPT().state_dict().keys()
    assert_within_rule(logits(model), exact, adapted)


@pytest.mark.parametrize("names", [("q_proj", "v_proj"), ("q_proj", "k_proj", "v_proj", "out_proj")])
def test_peft_finds_the_projections_and_computes_what_the_example_does(names: tuple[str, ...]) -> None:
    ours = GPT(num_kv_heads=2)
    theirs = peft.get_peft_model(
        copy.deepcopy(ours), peft.LoraConfig(r=4, lora_alpha=4, target_modules=list(names))
    )
    adapt(ours, names=names)
    taught(theirs)
    layers = [
        [layer for layer in model.modules() if isinstance(layer, hw.MultiHeadAttention)]
        for model in (ours, theirs)
    ]
    with torch.no_grad():
        for own, other in zip(*layers, strict=True):
            for name in names:
                adapter = getattr(other, name)
                getattr(own, name).down.weight.copy_(adapter.lora_A["default"].weight)
                getattr(own, name).up.weight.copy_(adapter.lora_B["default"].weight)
    exact, found = logits(copy.deepcopy(ours).double()), logits(theirs)
    assert (exact - logits(GPT(num_kv_heads=2))).abs().max() > 1e-3
    assert_within_rule(found, exact, logits(ours))
    assert_within_rule(logits(theirs.merge_and_unload()), exact, found)


def test_the_text_is_all_known_to_the_gpt() -> None:
    assert len(CODE) > 50_000
    assert set(CODE) <= set(TEXT)
