"""The steps of `generate` as one picture: equal to one forward over the whole text, or refused."""

import inspect
import threading
from dataclasses import fields

import pytest
import torch
from torch import Tensor, nn
from transformers import DynamicCache, StaticCache

from headwise.errors import ArgumentError, UnsupportedError
from headwise.evidence import Collect, Evidence
from headwise.models.attachment import AttachedLayer, attach

from .families import family

PROMPT = torch.stack([torch.arange(3, 16), torch.arange(40, 53)])
PADDED = {"input_ids": PROMPT, "attention_mask": torch.tensor([[1] * 13, [0] * 4 + [1] * 9])}
ALL = Collect(
    weights=True,
    map_size=7,
    top_k=8,
    offsets=[0, 2, 6],
    rows=[20, 3, -3],
    received=True,
    heads=[2, 0],
    pairs=[(0, 3)],
    local_window=2,
)
GREEDY = {"do_sample": False, "eos_token_id": None}


def assert_same(found: Evidence[Tensor], expected: Evidence[Tensor]) -> None:
    for each in fields(Evidence):
        name, one, other = each.name, getattr(found, each.name), getattr(expected, each.name)
        if isinstance(other, Tensor):
            # Distances are as large as the text is long.
            rtol = 1e-5 if name == "mean_distance" else 0
            torch.testing.assert_close(
                one,
                other,
                atol=1e-5,
                rtol=rtol,
                equal_nan=True,
                msg=lambda text, name=name: f"{name}: {text}",
            )
        else:
            assert one == other, name


def whole(model: nn.Module, heads, ids: Tensor, mask: Tensor | None = None) -> dict[AttachedLayer, Evidence]:
    """The evidence of one forward over the whole text."""
    with torch.no_grad():
        model(ids, attention_mask=mask, use_cache=False)
    return {layer: heads.evidence[layer] for layer in heads.layers}


def step(model: nn.Module, ids: Tensor, cache=None, **more) -> DynamicCache:
    """One forward of a loop of the user's own; the cache to go on with."""
    # transformers is renaming the argument.
    name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    with torch.no_grad():
        return model(ids, **{name: cache}, use_cache=True, **more)[name]


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_32_tokens_of_a_real_model_are_32_more_rows(cache, smollm2):
    texts = ["The bank raised rates because inflation was rising", "Hello there"]
    model = smollm2.model
    batch = smollm2.tokenizer(texts, return_tensors="pt", padding=True, padding_side="left")
    assert not batch["attention_mask"][1, 3]
    prompt = batch["input_ids"].shape[1]
    collect = Collect(top_k=3, rows=[2, -1], received=True)
    with attach(model, collect=collect) as heads:
        # The last token that comes is not read any more.
        ids = model.generate(**batch, **GREEDY, max_new_tokens=33, cache_implementation=cache)[:, :-1]
        found = {layer: heads.evidence[layer] for layer in heads.layers}
        mask = torch.cat([batch["attention_mask"], torch.ones(2, 32, dtype=torch.long)], dim=1)
        for layer, expected in whole(model, heads, ids, mask).items():
            assert found[layer].entropy.shape == (2, 9, prompt + 32)
            assert_within_reach(found[layer], expected)


def assert_within_reach(found: Evidence[Tensor], expected: Evidence[Tensor]) -> None:
    """Equal but for the key of the largest weight, which rounding chooses between two that are alike."""
    sums = ("entropy", "normalised_entropy", "mean_distance", "received")  # over many keys or rows
    exact = ("largest_weight", "first_token", "previous_token", "self_token", "local", "row_weights")
    for name in (*exact, *sums):
        one, other = getattr(found, name), getattr(expected, name)
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5 * (name in sums), equal_nan=True)
    assert torch.equal(found.visible, expected.visible)
    assert (found.largest_key == expected.largest_key).float().mean() > 0.999


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize(
    "kind", ["LlamaForCausalLM", "MistralForCausalLM", "Gemma3ForCausalLM", "GptOssForCausalLM"]
)
def test_generation_of_a_padded_batch_equals_one_forward(kind, cache):
    """With a window of 5 tokens all but Llama drop keys from their cache."""
    model = family(kind).build()
    with attach(model, collect=ALL) as heads:
        ids = model.generate(**PADDED, **GREEDY, max_new_tokens=17, cache_implementation=cache)[:, :-1]
        found = {layer: heads.evidence[layer] for layer in heads.layers}
        mask = torch.cat([PADDED["attention_mask"], torch.ones(2, 16, dtype=torch.long)], dim=1)
        for layer, expected in whole(model, heads, ids, mask).items():
            assert found[layer].entropy.shape == (2, 2, 29)
            assert_same(found[layer], expected)


def test_the_first_token_is_no_longer_seen_once_it_has_left_the_window():
    model = family("MistralForCausalLM").build()
    with attach(model, collect=Collect()) as heads:
        cache = step(model, PROMPT[:1, :3])
        for token in PROMPT[0, 3:]:
            cache = step(model, token[None, None], cache)
        assert cache.layers[0].keys.shape[2] == 4
        first = heads.evidence[0].first_token[0, 0]
    assert (first[:5] > 0).all()
    assert not first[5:].any()


SOME = Collect(weights=True, map_size=5, received=True, rows=[1, -2], top_k=20)


@pytest.mark.parametrize("parts", [(5, 4, 1, 3), (1,) * 13])
@pytest.mark.parametrize("kind", ["Qwen2ForCausalLM", "MistralForCausalLM"])
def test_a_loop_of_the_users_own_equals_one_forward(kind, parts):
    model, cache = family(kind).build(), None
    with attach(model, collect=SOME) as heads:
        for part in PROMPT.split(parts, dim=1):
            cache = step(model, part, cache)
            if cache.get_seq_length() > 3:  # before, row -2 is row 1 or there is none
                assert (
                    heads.evidence[1].visible.shape[2] == cache.get_seq_length()
                )  # reading disturbs nothing
        found = {layer: heads.evidence[layer] for layer in heads.layers}
        for layer, expected in whole(model, heads, PROMPT).items():
            assert_same(found[layer], expected)


def test_a_loop_may_leave_inference_mode():
    model = family("LlamaForCausalLM").build()
    with attach(model, collect=Collect(received=True)) as heads:
        with torch.inference_mode():
            cache = step(model, PROMPT[:, 1:], step(model, PROMPT[:, :1]))
        step(model, PROMPT[:, :3], cache)
        assert heads.evidence[0].received.sum(-1).sub(16).abs().max() < 1e-4


def test_evidence_that_was_read_is_not_changed_by_later_steps():
    model = family("LlamaForCausalLM").build()
    with attach(model, collect=Collect(received=True)) as heads:
        cache = step(model, PROMPT[:, 1:5], step(model, PROMPT[:, :1]))
        read = heads.evidence[0]
        before = {name: getattr(read, name).clone() for name in ("entropy", "received")}
        for _ in range(9):
            cache = step(model, PROMPT[:, :1], cache)
        assert all(torch.equal(getattr(read, name), each) for name, each in before.items())
        assert heads.evidence[0].entropy.shape[2] == 14


def test_other_forwards_start_anew():
    model = family("LlamaForCausalLM").build()
    with attach(model, collect=Collect()) as heads:
        cache = step(model, PROMPT)
        step(model, PROMPT[:, :5])  # without a cache
        assert heads.evidence[0].entropy.shape[2] == 5
        step(model, PROMPT[:, :1], cache)  # another cache than the one before
        assert (heads.evidence.first_row, heads.evidence[0].entropy.shape[2]) == (13, 1)
        step(model, PROMPT[:, :2], cache)
        assert (heads.evidence.first_row, heads.evidence[0].entropy.shape[2]) == (13, 3)
        cache.reset()
        step(model, PROMPT[:, :3], cache)
        assert (heads.evidence.first_row, heads.evidence[0].entropy.shape[2]) == (0, 3)
        heads.collect = Collect(top_k=2)
        step(model, PROMPT[:, :1], cache)
        assert (heads.evidence.first_row, heads.evidence[0].entropy.shape[2]) == (3, 1)


def test_a_forward_that_fails_is_not_gone_on_from(monkeypatch):
    model = family("LlamaForCausalLM").build()
    with attach(model, collect=Collect()) as heads:
        cache = step(model, PROMPT)
        with monkeypatch.context() as failing:
            failing.setattr(model.lm_head, "forward", None)
            with pytest.raises(TypeError, match="not callable"):
                step(model, PROMPT[:, :1], cache)
        step(model, PROMPT[:, :1], cache)
        assert (heads.evidence.first_row, heads.evidence[1].entropy.shape[2]) == (14, 1)


def test_a_baseline_that_is_run_between_two_steps_does_not_touch_the_picture():
    model = family("LlamaForCausalLM").build()
    with attach(model, collect=Collect()) as heads:
        cache = step(model, PROMPT)
        heads.ablate(layer=0, head=0, how="mean", baseline={"input_ids": PROMPT[:, :5]})
        step(model, PROMPT[:, :2], cache)
        assert heads.evidence[0].entropy.shape[2] == 15


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


def test_a_part_that_is_run_by_itself_is_a_text_of_its_own():
    model = family("LlamaForCausalLM").build()
    with attach(model, collect=Collect(rows=[-1])) as heads, torch.no_grad():
        step(model, PROMPT[:, :1], step(model, PROMPT))
        model.model.layers[1](
            torch.randn(2, 5, 32), position_embeddings=(torch.ones(1, 5, 8), torch.ones(1, 5, 8))
        )
        assert heads.evidence[1].entropy.shape[2] == 5
        assert heads.evidence[1].row_weights.shape == (2, 4, 1, 5)
        assert heads.evidence[0].entropy.shape[2] == 14


def test_two_threads_generate_with_one_attached_model():
    model, found = family("MistralForCausalLM").build(), {}

    def work(name: int) -> None:
        ids = model.generate(PROMPT[name : name + 1], **GREEDY, max_new_tokens=9 + name)
        found[name] = (ids[:, :-1], heads.evidence[1])

    with attach(model, collect=Collect(weights=True, received=True)) as heads:
        threads = [threading.Thread(target=work, args=(name,)) for name in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for name, (ids, evidence) in found.items():
            assert ids.shape[1] == 21 + name
            assert_same(evidence, whole(model, heads, ids)[heads.layers[1]])


@pytest.mark.parametrize("kind", ["LlamaForCausalLM", "GPT2LMHeadModel"])
def test_attentions_of_the_model_itself_are_the_evidence_of_each_step(kind):
    """GPT-2 keeps the keyword from its layers."""
    model = family(kind).build()
    options = {**GREEDY, "max_new_tokens": 3, "output_attentions": True, "return_dict_in_generate": True}
    with attach(model, collect=Collect(rows=[14, 2, -2])) as heads:
        attentions = model.generate(PROMPT, **options).attentions
        assert [[each.entropy.shape[2] for each in step] for step in attentions] == [
            [13] * 2,
            [1] * 2,
            [1] * 2,
        ]
        assert [step[0].row_weights.shape[2:] for step in attentions] == [(2, 13), (0, 14), (1, 15)]
        assert torch.equal(attentions[2][1].entropy, heads.evidence[1].entropy[:, :, 14:])
        heads.collect = {0: Collect()}
        with pytest.raises(
            UnsupportedError, match=r"output_attentions=.*pass attach a collect= for this layer"
        ):
            model.generate(PROMPT, **options)
