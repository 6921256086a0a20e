"""Real models: every head's weights, and heads switched off, held against the models' own eager attention."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn

from headwise.errors import MismatchError
from headwise.evidence import Collect
from headwise.models.attachment import attach, interface
from headwise.models.opening.opened_model import OpenedModel

from ...tolerance import assert_within_rule

TEXTS = ["The bank raised rates because inflation was rising", "Hello there"]


@pytest.fixture(scope="module", params=["smollm2", "minilm"])
def opened(request) -> OpenedModel:
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def exact_model(opened) -> nn.Module:
    """A copy of the model that computes in float64, with the same weights."""
    return copy.deepcopy(opened.model).double()


@contextmanager
def eager(model: nn.Module) -> Iterator[None]:
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


@contextmanager
def slice_zeroed(model: nn.Module, layer: int, head: int, head_dim: int) -> Iterator[None]:
    """Zero a head's slice of what goes into the output projection."""
    projections = [
        module
        for name, module in model.named_modules()
        if name.endswith(("o_proj", "attention.output.dense"))
    ]

    def before_projection(module: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        heads = args[0].clone()
        heads[..., head * head_dim : (head + 1) * head_dim] = 0
        return (heads,)

    hook = projections[layer].register_forward_pre_hook(before_projection)
    try:
        yield
    finally:
        hook.remove()


def head_dim_of(model: nn.Module) -> int:
    return model.config.hidden_size // model.config.num_attention_heads


def padded_batch(opened: OpenedModel) -> dict[str, Tensor]:
    batch = opened.tokenizer(TEXTS, return_tensors="pt", padding=True, padding_side="left")
    assert batch["attention_mask"][1].tolist().index(1) > 3
    return dict(batch)


def outputs(model: nn.Module, batch: dict[str, Tensor], *, gradients: bool = False) -> Tensor:
    """The logits, or the last hidden state, of the tokens that are no padding."""
    with torch.set_grad_enabled(gradients):
        return model(**batch)[0].detach()[batch["attention_mask"].bool()]


def test_weights_of_every_head_equal_those_of_eager(opened):
    model, batch = opened.model, padded_batch(opened)
    with eager(model), torch.no_grad():
        expected = model(**batch, output_attentions=True).attentions
    with attach(model, collect=Collect(weights=True)) as heads:
        assert heads.max_logit_difference < 1e-3
        with torch.no_grad():
            model(**batch)
        assert [layer.layer for layer in heads.layers] == list(range(len(expected)))
        for layer, weights in enumerate(expected):
            found = heads.evidence[layer].weights
            assert found.shape == weights.shape
            # [batch, num_heads, seq_len, kv_len] -> the rows of real tokens
            rows = batch["attention_mask"].bool()[:, None].expand(weights.shape[:3])
            torch.testing.assert_close(found[rows], weights[rows], atol=1e-5, rtol=0)


def test_weights_of_a_batch_equal_those_of_each_text_alone(smollm2):
    batch = padded_batch(smollm2)
    alone = {name: given[1:, -2:] for name, given in batch.items()}
    assert alone["attention_mask"].all()
    with attach(smollm2.model, collect=Collect(weights=True)) as heads:
        outputs(smollm2.model, batch)
        together = [heads.evidence[layer].weights[1, :, -2:, -2:] for layer in range(30)]
        outputs(smollm2.model, alone)
        for layer in range(30):
            own = heads.evidence[layer].weights[0]
            torch.testing.assert_close(together[layer], own, atol=1e-4, rtol=0)


@pytest.mark.parametrize(("layer", "head"), [(0, 0), (3, 5), (5, 8)])
def test_zero_ablation_equals_a_zeroed_slice_before_the_projection(opened, exact_model, layer, head):
    """Bit for bit with the same attention around it, and as near to float64 as eager comes."""
    model, batch = opened.model, padded_batch(opened)
    with eager(model):
        whole = outputs(model, batch)
    with slice_zeroed(model, layer, head, head_dim_of(model)), eager(model):
        by_eager = outputs(model, batch)
    assert (by_eager - whole).abs().max() > 1e-2
    with attach(model) as heads:
        with slice_zeroed(model, layer, head, head_dim_of(model)):
            expected = outputs(model, batch)
        heads.ablate(layer=layer, head=head)
        found = outputs(model, batch)
    assert torch.equal(found, expected)
    # Under eager a padding row that sees nothing would be NaN in float64; there is no kernel for float64.
    with attach(exact_model), slice_zeroed(exact_model, layer, head, head_dim_of(model)):
        exact = outputs(exact_model, batch)
    assert_within_rule(found, exact, by_eager)


@pytest.mark.parametrize(("layer", "head"), [(0, 0), (3, 5), (5, 8)])
def test_where_gradients_flow_zero_ablation_gives_the_same_bits(opened, layer, head):
    """The kernel answers in training too; how near it is to float64 is held above."""
    model, batch = opened.model, padded_batch(opened)
    with attach(model) as heads:
        heads.ablate(layer=layer, head=head)
        expected = outputs(model, batch)
        found = outputs(model, batch, gradients=True)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("seq_len", [9, 64, 269])
def test_attached_a_model_is_as_near_to_float64_as_under_eager(opened, exact_model, seq_len):
    text = " ".join(TEXTS[0][start:] for start in range(len(TEXTS[0]))) * 2
    batch = dict(opened.tokenizer(text, return_tensors="pt", truncation=True, max_length=seq_len))
    assert batch["input_ids"].shape == (1, seq_len)
    with eager(exact_model):
        exact = outputs(exact_model, batch)
    with eager(opened.model):
        by_eager = outputs(opened.model, batch)
    with attach(opened.model):
        assert_within_rule(outputs(opened.model, batch), exact, by_eager)


@pytest.mark.parametrize("gradients", [False, True])
def test_watching_the_heads_changes_no_bit(opened, gradients):
    batch = padded_batch(opened)
    with attach(opened.model) as heads:
        unwatched = outputs(opened.model, batch, gradients=gradients)
        heads.collect = Collect(weights=True, map_size=4, top_k=2)
        assert torch.equal(outputs(opened.model, batch, gradients=gradients), unwatched)


def test_generate_with_a_head_off_gives_the_tokens_of_the_zeroed_slice(smollm2):
    model, batch = smollm2.model, padded_batch(smollm2)
    options = {"max_new_tokens": 6, "do_sample": False}
    untouched = model.generate(**batch, **options)
    with slice_zeroed(model, 3, 5, 64), eager(model):
        expected = model.generate(**batch, **options)
    assert not torch.equal(expected, untouched)
    with attach(model, collect=Collect()) as heads:
        heads.ablate(layer=3, head=5)
        assert torch.equal(model.generate(**batch, **options), expected)
        assert heads.evidence[29].entropy.shape == (2, 9, batch["input_ids"].shape[1] + 5)


def test_a_lost_padding_mask_is_caught(opened, monkeypatch):
    whole = interface.sdpa_mask
    monkeypatch.setattr(
        interface, "sdpa_mask", lambda *args, **kwargs: whole(*args, **{**kwargs, "attention_mask": None})
    )
    with pytest.raises(MismatchError, match="than under eager"):
        attach(opened.model)
