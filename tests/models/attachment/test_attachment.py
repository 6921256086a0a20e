"""Attaching, detaching, and what must not be left behind."""

import gc
import weakref

import pytest
import torch
from transformers import LlamaForCausalLM

from headwise.errors import ArgumentError, MismatchError
from headwise.evidence import Collect
from headwise.models.attachment import AttachedLayer, attach, interface

from .attaching import IDS, assert_nothing_left, run
from .families import family


@pytest.fixture
def model() -> LlamaForCausalLM:
    return family("LlamaForCausalLM").build()


def test_layers_are_described_as_they_call(model):
    with attach(model) as heads:
        assert heads.layers == tuple(
            AttachedLayer(layer, f"model.layers.{layer}.self_attn", 4, 2, 8, 8, "self") for layer in (0, 1)
        )
        assert heads.layers[0].group_size == 2


def test_the_model_gives_the_same_logits_while_attached(model):
    before = run(model)
    with attach(model) as heads:
        assert 0 <= heads.max_logit_difference < 1e-5
        torch.testing.assert_close(run(model), before, atol=1e-5, rtol=0)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_everything_is_restored_when_the_body_raises(model, error):
    heads = attach(model)
    with pytest.raises(error), heads:
        raise error
    assert_nothing_left(model)


def test_everything_is_restored_when_a_forward_raises(model):
    with attach(model, collect=Collect()), pytest.raises(ValueError, match="exactly one of input_ids"):
        model(input_idz=IDS)
    assert_nothing_left(model)


def test_everything_is_restored_when_the_proof_fails(model, monkeypatch):
    monkeypatch.setattr(interface, "mask_function", lambda *args, **kwargs: None)
    with pytest.raises(MismatchError, match="LlamaForCausalLM gives other numbers"):
        attach(model)
    assert_nothing_left(model)


def test_everything_is_restored_when_the_proof_is_interrupted(model, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(interface, "attention_function", interrupt)
    with pytest.raises(KeyboardInterrupt):
        attach(model)
    assert_nothing_left(model)


def test_detach_works_without_with_and_twice(model):
    heads = attach(model, collect=Collect())
    run(model)
    heads.detach()
    assert_nothing_left(model)
    heads.detach()
    assert heads.evidence[0].entropy.shape == (1, 4, 13)
    with pytest.raises(ArgumentError, match="LlamaForCausalLM is detached; attach it again"):
        heads.ablate(layer=0, head=0)


def test_a_detached_attachment_promises_nothing(model):
    heads = attach(model)
    heads.detach()
    detached = "LlamaForCausalLM is detached; attach it again to record or ablate its heads"
    with pytest.raises(ArgumentError, match=detached):
        heads.collect = Collect()
    with pytest.raises(ArgumentError, match=detached), heads:
        pass
    assert_nothing_left(model)


def test_an_attachment_that_is_forgotten_lets_go_of_the_model(model):
    heads = attach(model, collect=Collect())
    run(model)
    del heads
    gc.collect()
    assert_nothing_left(model)


def test_a_forgotten_model_is_freed():
    model = family("LlamaForCausalLM").build()
    gone = weakref.ref(model)
    heads = attach(model)
    heads.detach()
    del model, heads
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_the_implementation_that_was_set_comes_back(model, implementation):
    model.set_attn_implementation(implementation)
    with attach(model):
        pass
    assert_nothing_left(model, implementation)


def test_parts_with_configs_of_their_own_come_back():
    model = family("CLIPModel").build()
    model.set_attn_implementation({"": "sdpa", "text_config": "eager", "vision_config": "sdpa"})
    with attach(model):
        assert model.config.text_config._attn_implementation == interface.NAME
        assert model.config.vision_config._attn_implementation == interface.NAME
    assert model.config.text_config._attn_implementation == "eager"
    assert model.config.vision_config._attn_implementation == "sdpa"


def test_training_mode_is_restored_module_by_module(model):
    model.train()
    model.model.layers[0].eval()
    before = [part.training for part in model.modules()]
    with attach(model):
        assert [part.training for part in model.modules()] == before
    assert [part.training for part in model.modules()] == before


def test_the_random_state_is_not_touched(model):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with attach(model) as heads:
        heads.ablate(layer=0, head=0, how="mean", baseline={"input_ids": IDS})
        assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("gradient", [True, False])
def test_dropout_in_training_drops_the_same_weights_whether_evidence_is_collected(gradient):
    """With one seed; they are not those that eager would drop, which has another way to draw them."""
    model = family("LlamaForCausalLM").build(attention_dropout=0.4).train()
    found = []
    with torch.set_grad_enabled(gradient):
        for collect in (None, Collect(weights=True)):
            with attach(model, collect=collect) as heads:
                torch.manual_seed(7)
                found.append(model(IDS).logits)
                if collect:
                    sums = heads.evidence[0].weights.sum(-1)
                    torch.testing.assert_close(sums, torch.ones_like(sums))
    torch.testing.assert_close(found[1], found[0], atol=0, rtol=0)
    with torch.no_grad():
        assert (model.eval()(IDS).logits - found[0]).abs().max() > 0.01


def test_gradients_equal_those_of_eager(model):
    model.set_attn_implementation("eager")
    model(IDS).logits.pow(2).mean().backward()
    weight = model.model.layers[0].self_attn.q_proj.weight
    expected, weight.grad = weight.grad.clone(), None
    with attach(model, collect=Collect()):
        model(IDS).logits.pow(2).mean().backward()
    torch.testing.assert_close(weight.grad, expected, atol=1e-5, rtol=1e-4)
