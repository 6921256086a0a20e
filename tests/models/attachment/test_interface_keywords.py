"""What the attention function is told beside its tensors: taken, passed over, or refused by name."""

import weakref

import pytest
import torch
from transformers.masking_utils import bidirectional_mask_function

from headwise.errors import ArgumentError, UnsupportedError
from headwise.evidence import Collect
from headwise.models.attachment import attach, interface
from headwise.models.attachment.keywords import HARMLESS, MENDS

from .calling import (
    BATCH,
    KV_LEN,
    SEQ_LEN,
    Answering,
    SomeAttention,
    call,
    hidden_as,
    some_visible,
    tensors,
)
from .families import family

IDS = torch.arange(3, 16)[None]


def test_a_mask_of_other_sizes_is_refused():
    given = tensors()
    for visible in (torch.ones(BATCH, 1, SEQ_LEN, KV_LEN + 1, dtype=torch.bool), some_visible()[..., :-1]):
        with pytest.raises(ArgumentError, match=r"mask has shape \(2, 1, 5, .\), but kv_len is 7, not"):
            call(SomeAttention(), *given, visible)


@pytest.mark.parametrize("causal", [False, True])
def test_the_mask_is_always_a_tensor(causal):
    """Also where transformers would leave it out for its own functions, which then have to guess."""
    see_all = {} if causal else {"mask_function": bidirectional_mask_function}
    skips = {"allow_is_causal_skip": True, "allow_is_bidirectional_skip": True}
    mask = interface.mask_function(batch_size=2, q_length=5, kv_length=5, **see_all, **skips)
    assert mask.dtype == torch.bool
    assert torch.equal(mask[1, 0], torch.ones(5, 5).tril().bool() if causal else torch.ones(5, 5).bool())


@pytest.mark.parametrize("name", sorted(HARMLESS))
def test_harmless_keywords_change_nothing(name):
    given = tensors()
    assert torch.equal(call(SomeAttention(), *given, None, **{name: 3}), call(SomeAttention(), *given, None))


@pytest.mark.parametrize("name", [*sorted(MENDS), "a_keyword_of_tomorrow"])
def test_other_keywords_are_refused_by_name_unless_they_ask_nothing(name):
    given = tensors()
    with pytest.raises(UnsupportedError, match=f"SomeAttention passes {name}=... to its attention"):
        call(SomeAttention(), *given, None, **{name: torch.ones(2)[0]})
    assert torch.equal(
        call(SomeAttention(), *given, None, **{name: None}), call(SomeAttention(), *given, None)
    )


def second_of(listener: Answering, **keywords):
    """What the function returns second, which the model takes for attention weights."""
    module = SomeAttention()
    interface.LISTENERS[module] = weakref.ref(listener)
    return interface.attention_function(module, *tensors(), None, **keywords)[1]


def test_weights_are_returned_second_where_they_are_collected():
    listener = Answering(Collect(weights=True))
    for keywords in ({}, {"output_attentions": True}, {"output_attentions": False}):
        assert second_of(listener, **keywords) is listener.evidence.weights


def test_evidence_is_returned_second_where_it_is_asked_for():
    listener = Answering(Collect())
    assert second_of(listener, output_attentions=True) is listener.evidence
    assert second_of(listener) is second_of(listener, output_attentions=False) is None


def test_output_attentions_of_a_layer_that_is_not_watched_is_refused():
    assert second_of(Answering(), output_attentions=False) is None
    with pytest.raises(UnsupportedError, match=r"output_attentions.*pass attach a collect= for this layer"):
        second_of(Answering(), output_attentions=True)


@pytest.mark.parametrize(
    "mask",
    [torch.ones(SEQ_LEN, KV_LEN, dtype=torch.bool), torch.ones(BATCH, 1, SEQ_LEN, KV_LEN, dtype=torch.long)],
)
def test_masks_of_another_form_are_refused(mask):
    with pytest.raises(
        UnsupportedError, match=r"SomeAttention passes a mask of shape .*; headwise reads rank 4"
    ):
        call(SomeAttention(), *tensors(), mask)


def test_a_module_that_belongs_to_no_attachment_is_refused():
    with pytest.raises(UnsupportedError, match="SomeAttention runs headwise's attention but belongs to no"):
        interface.attention_function(SomeAttention(), *tensors(), None)


def test_keywords_given_to_the_model_are_refused_in_its_layers():
    model = family("LlamaForCausalLM").build()
    lengths = torch.tensor([0, 6, 13])
    with attach(model), torch.no_grad():
        with pytest.raises(
            UnsupportedError, match=r"LlamaAttention passes cu_seq_lens_q=.* pass one row per text"
        ):
            model(IDS, cu_seq_lens_q=lengths, cu_seq_lens_k=lengths)
        with pytest.raises(UnsupportedError, match="LlamaAttention passes my_option="):
            model(IDS, my_option=1)
        assert model(IDS, num_items_in_batch=torch.tensor(3)).logits.shape == (1, 13, 97)


@pytest.mark.parametrize("kind", ["LlamaForCausalLM", "BertModel"])
@pytest.mark.parametrize("as_float", [False, True])
def test_a_mask_of_rank_four_passes_through(kind, as_float):
    model = family(kind).build()
    torch.manual_seed(13)
    visible = (torch.randn(1, 1, 13, 13) > 0) | torch.eye(13, dtype=torch.bool)
    additive = hidden_as(visible, torch.finfo(torch.float32).min)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        expected = model(IDS, attention_mask=additive)[0]
        with attach(model):
            found = model(IDS, attention_mask=additive if as_float else visible)[0]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("in_call", [False, True])
def test_a_decoder_told_to_look_both_ways_does(in_call):
    model = family("LlamaForCausalLM").build()
    told = {"is_causal": False} if in_call else {}
    if not in_call:
        model.config.is_causal = False
    model.set_attn_implementation("eager")
    with torch.no_grad():
        expected = model(IDS, **told).logits
        with attach(model, collect=Collect(weights=True)) as heads:
            torch.testing.assert_close(model(IDS, **told).logits, expected, atol=1e-5, rtol=0)
            assert (heads.evidence[0].weights > 0).all()


def test_the_name_means_nothing_to_transformers():
    assert not [part for part in ("sdpa", "flash", "flex", "/", "eager", "paged") if part in interface.NAME]
