"""Heads switched off inside the attention call, held against hooks on the projection of an eager model."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache

from headwise.errors import ArgumentError, UnsupportedError
from headwise.evidence import Collect
from headwise.models.attachment import attach

from .families import family

HEAD_DIM = 8
IDS = torch.arange(3, 16)[None]
PADDED = {
    "input_ids": torch.stack([torch.arange(3, 16), torch.arange(40, 53)]),
    "attention_mask": torch.tensor([[1] * 13, [0] * 4 + [1] * 9]),
}
OTHER = {"input_ids": torch.arange(60, 90)[None]}


@contextmanager
def edited(model: nn.Module, layer: int, edit: Callable[[Tensor], Tensor]) -> Iterator[nn.Module]:
    """The eager model, with `edit` applied to `[batch, seq_len, heads, head_dim]` before the projection."""

    def before_projection(module: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        heads = args[0].clone().unflatten(-1, (-1, HEAD_DIM))
        return (edit(heads).flatten(-2),)

    model.set_attn_implementation("eager")
    hook = model.model.layers[layer].self_attn.o_proj.register_forward_pre_hook(before_projection)
    try:
        yield model
    finally:
        hook.remove()


def head_outputs(model: nn.Module, layer: int, **inputs: Tensor) -> Tensor:
    """What the eager model's heads of a layer give, `[batch, seq_len, num_heads, head_dim]`."""
    found = []
    with edited(model, layer, lambda heads: found.append(heads) or heads), torch.no_grad():
        model(**inputs)
    return found[0]


def replacing(head: int, value: Tensor | float) -> Callable[[Tensor], Tensor]:
    def edit(heads: Tensor) -> Tensor:
        heads[:, :, head] = value
        return heads

    return edit


def logits(model: nn.Module, **inputs: Tensor) -> Tensor:
    with torch.no_grad():
        return model(**(inputs or {"input_ids": IDS})).logits


def real(outputs: Tensor, inputs: dict[str, Tensor] = PADDED) -> Tensor:
    return outputs[inputs["attention_mask"].bool()]


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


def test_resample_in_a_vision_model_goes_by_patch():
    model = family("ViTModel").build()
    first, second = torch.randn(2, 1, 3, 24, 24)
    with attach(model) as heads, torch.no_grad():
        for layer in heads.layers:
            for head in range(4):
                heads.ablate(layer=layer, head=head, how="resample", baseline={"pixel_values": second})
        changed = model(pixel_values=first).last_hidden_state
        own = {"pixel_values": first}
        heads.restore()
        heads.ablate(layer=1, head=2, how="resample", baseline=own)
        torch.testing.assert_close(model(**own).last_hidden_state, model(**own).last_hidden_state)
        heads.restore()
        whole = model(**own).last_hidden_state
        assert (changed - whole).abs().max() > 0.1


def test_heads_of_an_encoder_decoder_are_named_by_path():
    model = family("T5ForConditionalGeneration").build()
    inputs = {"input_ids": IDS, "decoder_input_ids": IDS[:, :7]}
    with attach(model, collect=Collect()) as heads:
        whole = logits(model, **inputs)
        with pytest.raises(ArgumentError, match=r"layer=0 stands for 3 layers; name one: decoder\.block\.0"):
            heads.ablate(layer=0, head=1)
        changes = []
        for layer in heads.layers[:4]:
            heads.ablate(layer=layer.name, head=1)
            changes.append((logits(model, **inputs) - whole).abs().max())
            heads.restore(layer=layer, head=1)
        assert min(changes) > 1e-3
        cross = "decoder.block.0.layer.1.EncDecAttention"
        heads.ablate(layer=cross, head=1, how="mean", baseline=inputs)
        assert heads.evidence[cross].entropy.shape == (1, 4, 7)
        with pytest.raises(UnsupportedError, match=r"resample.* an encoder-decoder reads two texts"):
            heads.ablate(layer=cross, head=1, how="resample", baseline=inputs)


def test_generate_of_an_encoder_decoder_runs_with_heads_off():
    model = family("BartForConditionalGeneration").build()
    options = {"max_new_tokens": 6, "do_sample": False, "num_beams": 2}
    whole = model.generate(**PADDED, **options)
    with attach(model, collect=Collect()) as heads:
        assert torch.equal(model.generate(**PADDED, **options), whole)
        for layer in heads.layers:
            for head in range(4):
                heads.ablate(layer=layer, head=head)
        assert not torch.equal(model.generate(**PADDED, **options), whole)
        model.generate(**PADDED, **options)


def test_one_layer_of_a_module_that_serves_several():
    model = family("AlbertModel").build()
    with attach(model) as heads, torch.no_grad():
        states = []
        for layer in range(3):
            heads.ablate(layer=layer, head=1)
            states.append(model(IDS).last_hidden_state)
            heads.restore()
        assert all(not torch.allclose(states[a], states[b]) for a, b in ((0, 1), (0, 2), (1, 2)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layer": 7, "head": 0}, "layer=7 does not exist; the attention layers are 0 to 1"),
        ({"layer": -1, "head": 0}, "layer=-1 does not exist"),
        ({"layer": "model.layers.9", "head": 0}, "layer='model.layers.9' does not exist"),
        ({"layer": 1.0, "head": 0}, "layer=1.0 is a float; give its number or its module path"),
        ({"layer": 1, "head": 4}, "head=4 .* layer 1, which has 4 query heads and 2 KV heads; give 0 to 3"),
        ({"layer": 1, "head": -1}, "head=-1 does not exist"),
        ({"layer": 1, "head": True}, "head=True does not exist"),
        ({"layer": 1, "head": torch.tensor(1.0)}, r"head=tensor\(1.\) does not exist"),
        ({"layer": 1, "head": torch.tensor([0, 1])}, r"head=tensor\(\[0, 1\]\) does not exist"),
        ({"layer": torch.tensor([0, 1]), "head": 0}, r"layer=tensor\(\[0, 1\]\) is a Tensor; give its"),
        ({"layer": 1, "kv_head": 2}, "kv_head=2 does not exist in layer 1, .* give 0 to 1"),
        ({"layer": 1}, "head=None and kv_head=None; give exactly one"),
        ({"layer": 1, "head": 0, "kv_head": 0}, "head=0 and kv_head=0; give exactly one"),
        ({"layer": 1, "head": 0, "how": "noise"}, "how='noise' is unknown; allowed are 'zero'"),
        ({"layer": 1, "head": 0, "how": "mean"}, "how='mean' needs baseline=, inputs of the model"),
        ({"layer": 1, "head": 0, "baseline": OTHER}, "how='zero' takes no baseline; baseline is a dict"),
        ({"layer": 1, "head": 0, "how": "mean", "baseline": ["text"]}, "baseline is a str; give inputs"),
        ({"layer": 1, "head": 0, "how": "mean", "baseline": 7}, "baseline is a int; give inputs"),
        ({"layer": 1, "head": 0, "how": "mean", "baseline": {"ids": IDS}}, "with ids does not run through"),
        ({"layer": 1, "head": 0, "how": "mean", "baseline": []}, "baseline is an empty list"),
        ({"layer": 1, "head": 0, "how": "resample", "baseline": PADDED}, "holds 2; pass a batch of one"),
    ],
)  # fmt: skip
def test_what_cannot_be_ablated_is_refused(model, arguments, message):
    with attach(model) as heads:
        before = logits(model)
        with pytest.raises(ArgumentError, match=message):
            heads.ablate(**arguments)
        assert torch.equal(logits(model), before)


def test_a_resample_baseline_that_is_too_short_is_refused_when_run(model):
    with attach(model) as heads:
        heads.ablate(layer=1, head=0, how="resample", baseline={"input_ids": IDS[:, :5]})
        assert logits(model, input_ids=IDS[:, :5]).shape[1] == 5
        with pytest.raises(
            ArgumentError, match=r"has 5 positions and this input reaches position 12, .* at least 13"
        ):
            logits(model)


def test_a_baseline_that_never_reaches_the_layer_is_refused():
    with attach(family("CLIPModel").build()) as heads:
        text = {"input_ids": IDS[:, :5]}
        with pytest.raises(ArgumentError, match="baseline with input_ids does not run through CLIPModel"):
            heads.ablate(layer=heads.layers[0], head=0, how="mean", baseline=text)


def test_what_is_not_ablated_cannot_be_restored(model):
    with attach(model) as heads:
        heads.ablate(layer=1, head=2)
        with pytest.raises(
            ArgumentError,
            match=r"head 3 of layer 1 \(.*\) is not ablated; ablated there: 2",
        ):
            heads.restore(layer=1, head=3)
        with pytest.raises(ArgumentError, match="layer=5 does not exist"):
            heads.restore(layer=5, head=3)
        with pytest.raises(ArgumentError, match="restore got head=3, kv_head=None and no layer"):
            heads.restore(head=3)
