"""Which rows a picture of several forwards has: those that were recorded, and none that are not known."""

import pytest
import torch
from transformers import StaticCache

from headwise.errors import ArgumentError, UnsupportedError
from headwise.evidence import Collect
from headwise.models.attachment import attach

from .families import family
from .generating import GREEDY, PADDED, PROMPT, assert_same, step, whole


@pytest.mark.parametrize("kind", ["LlamaForCausalLM", "MistralForCausalLM"])
def test_behind_a_cache_that_nobody_watched_the_rows_are_those_of_the_whole_text(kind):
    model, mask = family(kind).build(), PADDED["attention_mask"]
    with attach(model) as heads:
        cache = step(model, PROMPT[:, :9], attention_mask=mask[:, :9])
        heads.collect = Collect(received=True, top_k=3, rows=[-1])
        step(model, PROMPT[:, 9:12], cache, attention_mask=mask[:, :12])
        step(model, PROMPT[:, 12:], cache, attention_mask=mask)
        assert heads.evidence.first_row == 9
        found = {layer: heads.evidence[layer] for layer in heads.layers}
        for layer, expected in whole(model, heads, PROMPT, mask).items():
            for name in ("entropy", "first_token", "largest_key", "top_keys", "previous_token"):
                one, other = getattr(found[layer], name), getattr(expected, name)[:, :, 9:]
                torch.testing.assert_close(one, other, atol=1e-5, rtol=0)
            torch.testing.assert_close(found[layer].row_weights, expected.row_weights, atol=1e-5, rtol=0)


def test_behind_such_a_cache_a_mask_of_rank_four_does_not_say_which_token_is_the_first():
    model = family("LlamaForCausalLM").build()
    with attach(model) as heads:
        cache = step(model, PROMPT)
        heads.collect = Collect(rows=[3])
        step(model, PROMPT[:, :1], cache, attention_mask=torch.ones(2, 1, 1, 14, dtype=torch.bool))
        with pytest.raises(UnsupportedError, match="row 3 of 14 was not recorded: it came before the first"):
            heads.evidence[0]
        heads.collect = Collect()
        step(model, PROMPT[:, :1], cache, attention_mask=torch.ones(2, 1, 1, 15, dtype=torch.bool))
        assert heads.evidence[0].first_token.isnan().all()
        assert not heads.evidence[0].entropy.isnan().any()


def test_rows_are_rows_of_the_text_and_may_be_asked_for_before_they_come():
    model = family("LlamaForCausalLM").build()
    with attach(model, collect=Collect(rows=[14, 2, -1], weights=True)) as heads:
        cache = step(model, PROMPT)
        with pytest.raises(ArgumentError, match=r"rows\[0\]=14 does not exist; of 13 query rows"):
            heads.evidence[0]
        for _ in range(3):
            cache = step(model, PROMPT[:, :1], cache)
        found = heads.evidence[0]
        assert found.weights.shape == (2, 4, 16, 16)
        assert torch.equal(found.row_weights, found.weights[:, :, [14, 2, 15]])


def test_a_map_over_several_forwards_needs_the_weights():
    model = family("LlamaForCausalLM").build()
    with attach(model, collect=Collect(map_size=4)) as heads:
        cache = step(model, PROMPT)
        assert heads.evidence[0].map.shape == (2, 4, 4, 4)
        step(model, PROMPT[:, :1], cache)
        with pytest.raises(
            UnsupportedError, match=r"map_size=4 .* read in 2 forwards .* weights=True as well"
        ):
            heads.evidence[0]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"num_beams": 3}, "as beam search does to reorder the batch"),
        ({"num_beams": 3, "cache_implementation": "static"}, "as beam search does to reorder the batch"),
        ({"prompt_lookup_num_tokens": 3}, "were taken back between two forwards, as assisted decoding does"),
    ],
)
def test_a_cache_that_was_changed_between_forwards_is_refused(options, reason):
    model = family("LlamaForCausalLM").build()
    with attach(model, collect=Collect()) as heads:
        # A text that repeats, so that there are tokens to guess, and some are taken back.
        model.generate(PROMPT[:1].repeat(1, 2), **GREEDY, **options, max_new_tokens=7)
        with pytest.raises(
            UnsupportedError, match=rf"layer 1 .* no whole picture: .*{reason}; run the finished"
        ):
            heads.evidence[1]
        assert 1 in heads.evidence
        step(model, PROMPT)
        assert heads.evidence[1].entropy.shape[2] == 13


def test_a_layer_that_did_not_run_in_every_forward_is_refused(monkeypatch):
    model = family("LlamaForCausalLM").build()
    last = model.model.layers[1]
    with attach(model, collect=Collect()) as heads:
        # A static cache does not mind that one of its layers stays behind.
        cache = step(model, PROMPT, StaticCache(config=model.config, max_cache_len=17))
        with monkeypatch.context() as skipping:
            skipping.setattr(last, "forward", lambda hidden_states, **options: hidden_states)
            cache = step(model, PROMPT[:, :1], cache)
        step(model, PROMPT[:, :1], cache)
        assert heads.evidence[0].entropy.shape[2] == 15
        with pytest.raises(UnsupportedError, match=r"layer 1 .* stands at row 13 where the text has 14"):
            heads.evidence[1]


def test_a_decoder_over_another_text_has_no_places_in_it():
    """Its own layers equal one forward; of cross-attention, what counts from no row's own key."""
    model = family("BartForConditionalGeneration").build()
    options = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False}
    with attach(model, collect=Collect(offsets=[1], received=True, top_k=4)) as heads:
        ids = model.generate(**PADDED, **options)[:, :-1]
        found = {layer: heads.evidence[layer] for layer in heads.layers if layer in heads.evidence}
        with torch.no_grad():
            model(**PADDED, decoder_input_ids=ids)
        assert [layer.kind for layer in found] == ["self", "cross"] * 3
        for layer, each in found.items():
            expected = heads.evidence[layer]
            if layer.kind == "self":
                assert_same(each, expected)
                continue
            for name in ("entropy", "first_token", "largest_key", "top_weights", "received"):
                torch.testing.assert_close(getattr(each, name), getattr(expected, name), atol=1e-5, rtol=0)
            assert each.previous_token.isnan().all()
            assert each.at_offsets.isnan().all()
