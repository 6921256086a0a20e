"""The steps of `generate` as one picture: equal to one forward over the whole text, or refused."""

import threading

import pytest
import torch
from torch import Tensor

from headwise.errors import UnsupportedError
from headwise.evidence import Collect, Evidence
from headwise.models.attachment import attach

from .families import family
from .generating import GREEDY, PADDED, PROMPT, assert_same, step, whole

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
