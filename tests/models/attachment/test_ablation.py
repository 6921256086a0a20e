"""Heads switched off inside the attention call, held against hooks on the projection of an eager model."""

import functools

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache

from headwise.errors import UnsupportedError
from headwise.evidence import Collect
from headwise.models.attachment import attach

from .ablating import HEAD_DIM, IDS, OTHER, PADDED, edited, head_outputs, logits, real, replacing
from .families import family


@pytest.fixture
def model() -> nn.Module:
    return family("LlamaForCausalLM").build()


@pytest.mark.parametrize("collect", [None, Collect()])
def test_zero_equals_an_empty_slice_before_the_projection(model, collect):
    with edited(model, 1, replacing(3, 0.0)):
        expected = logits(model, **PADDED)
    untouched = logits(model, **PADDED)
    assert (real(expected) - real(untouched)).abs().max() > 0.1
    with attach(model, collect=collect) as heads:
        heads.ablate(layer=1, head=3)
        torch.testing.assert_close(real(logits(model, **PADDED)), real(expected), atol=1e-5, rtol=0)


def test_a_head_may_be_off_in_many_layers_and_comes_back_alone(model):
    with attach(model) as heads:
        whole = logits(model)
        heads.ablate(layer=0, head=2)
        one = logits(model)
        heads.ablate(layer=1, head=2)
        heads.ablate(layer=1, head=0)
        assert (logits(model) - one).abs().max() > 0.01
        heads.restore(layer=1, head=2)
        heads.restore(layer=1, head=0)
        assert torch.equal(logits(model), one)
        heads.restore()
        assert torch.equal(logits(model), whole)


def test_a_kv_head_is_all_the_query_heads_that_read_it(model):
    with attach(model) as heads:
        heads.ablate(layer=1, kv_head=1)
        by_group = logits(model)
        heads.restore(layer=1, kv_head=1)
        heads.ablate(layer=1, head=2)
        one = logits(model)
        heads.ablate(layer=1, head=3)
        assert torch.equal(logits(model), by_group)
        assert (one - by_group).abs().max() > 0.01


@pytest.mark.parametrize("number", [numpy.int64, torch.tensor])
def test_numbers_of_numpy_and_torch_name_layers_and_heads(model, number):
    with attach(model, collect=Collect()) as heads:
        heads.ablate(layer=1, head=3)
        expected = logits(model)
        heads.restore()
        heads.ablate(layer=number(1), head=number(3))
        assert torch.equal(logits(model), expected)
        assert heads.evidence[number(1)] is heads.evidence[1]
        heads.restore(layer=number(1), head=number(3))
        heads.ablate(layer=0, kv_head=number(1))
        heads.restore(layer=0, head=2)
        heads.restore(layer=0, head=3)


def test_mean_is_over_the_tokens_of_the_baseline_that_are_no_padding(model):
    longer = {"input_ids": torch.arange(20, 27)[None]}
    rows = torch.cat([
        real(head_outputs(model, 1, **PADDED))[:, 3],
        head_outputs(model, 1, **longer)[0, :, 3],
    ])  # fmt: skip
    assert rows.shape == (13 + 9 + 7, HEAD_DIM)
    with edited(model, 1, replacing(3, rows.mean(0))):
        expected = logits(model)
    with attach(model) as heads:
        heads.ablate(layer=1, head=3, how="mean", baseline=[PADDED, longer])
        torch.testing.assert_close(logits(model), expected, atol=1e-5, rtol=0)


def test_resample_is_the_output_at_the_same_place_of_the_other_text(model):
    table = head_outputs(model, 1, **OTHER)[0, :, 3]

    def edit(heads: Tensor) -> Tensor:
        heads[0, :, 3] = table[:13]
        heads[1, 4:, 3] = table[:9]
        return heads

    with edited(model, 1, edit):
        expected = logits(model, **PADDED)
    with attach(model) as heads:
        heads.ablate(layer=1, head=3, how="resample", baseline=OTHER)
        torch.testing.assert_close(real(logits(model, **PADDED)), real(expected), atol=1e-5, rtol=0)


@pytest.mark.parametrize("how", ["zero", "mean", "resample"])
def test_a_baseline_is_run_with_every_head_on(model, how):
    """Two heads off: the second one's stand-in must not come from a model in which the first is off."""
    baseline = None if how == "zero" else OTHER
    with attach(model) as heads:
        heads.ablate(layer=0, head=0, how=how, baseline=baseline)
        heads.ablate(layer=1, head=3, how=how, baseline=baseline)
        forwards = logits(model)
        heads.restore()
        heads.ablate(layer=1, head=3, how=how, baseline=baseline)
        heads.ablate(layer=0, head=0, how=how, baseline=baseline)
        assert torch.equal(logits(model), forwards)


@pytest.mark.parametrize("kind", ["LlamaForCausalLM", "MistralForCausalLM", "GptOssForCausalLM"])
@pytest.mark.parametrize("cache", ["dynamic", "static", None])
def test_generate_gives_the_tokens_of_the_edited_eager_model(kind, cache):
    model = family(kind).build()
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    options |= {"use_cache": cache is not None, "cache_implementation": cache}
    untouched = model.generate(**PADDED, **options)
    with edited(model, 1, replacing(3, 0.0)):
        expected = model.generate(**PADDED, **options)
    assert not torch.equal(expected, untouched)
    with attach(model, collect=Collect()) as heads:
        heads.ablate(layer=1, head=3)
        assert torch.equal(model.generate(**PADDED, **options), expected)


def test_resample_counts_the_cache_and_not_the_padding(model):
    table = head_outputs(model, 1, **OTHER)[0, :, 3]
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}

    def edit(heads: Tensor) -> Tensor:
        # Without a cache every step reads all tokens, so that the places can be written down.
        heads[0, :, 3] = table[: heads.shape[1]]
        heads[1, 4:, 3] = table[: heads.shape[1] - 4]
        return heads

    with edited(model, 1, edit):
        expected = model.generate(**PADDED, **options, use_cache=False)
    with attach(model) as heads:
        heads.ablate(layer=1, head=3, how="resample", baseline=OTHER)
        assert torch.equal(model.generate(**PADDED, **options), expected)
        assert torch.equal(model.generate(**PADDED, **options, cache_implementation="static"), expected)


def test_resample_counts_the_cache_without_a_mask(model):
    with attach(model) as heads:
        heads.ablate(layer=1, head=3, how="resample", baseline=OTHER)
        whole = logits(model)
        with torch.no_grad():
            cache = DynamicCache(config=model.config)
            model(input_ids=IDS[:, :9], cache=cache)
            rest = model(input_ids=IDS[:, 9:], cache=cache).logits
        torch.testing.assert_close(rest, whole[:, 9:], atol=1e-5, rtol=0)


def test_resample_is_refused_where_the_places_of_the_rows_are_not_known(model):
    """A part run by itself sees no attention mask, and checkpointing runs each layer again in backward."""
    message = r"model\.layers\.1\.self_attn runs outside a forward of the whole LlamaForCausalLM \(a part"
    with attach(model) as heads:
        heads.ablate(layer=1, head=3, how="resample", baseline=OTHER)
        with pytest.raises(UnsupportedError, match=message):
            model.model(**PADDED)
        layer = model.model.layers[1]
        layer.forward = functools.partial(checkpoint, layer.forward, use_reentrant=False)
        loss = model(**PADDED, use_cache=False).logits.sum()
        with pytest.raises(UnsupportedError, match=message):
            loss.backward()
        heads.ablate(layer=1, head=3)
        model.model(**PADDED)
        model(**PADDED, use_cache=False).logits.sum().backward()
