"""KV heads that were written out for more query heads: in their places, or tiled."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import PreTrainedModel

from headwise.verbs.check_model import check_model
from headwise.verbs.check_model.kv_order import KvOrder, order_of

from ...models.attachment.families import family
from .changing import copy_head, said, told

IDS = torch.tensor([[5, 7, 11, 13, 17, 19]])
HEADS, WIDTH = 8, 8
SIZES = {"num_attention_heads": HEADS, "head_dim": WIDTH, "hidden_size": HEADS * WIDTH}


def grouped(kind: str, num_kv_heads: int) -> PreTrainedModel:
    model = family(kind).build(**SIZES, num_key_value_heads=num_kv_heads)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.normal_(0.0, 0.3)
    return model


def written_out(model: PreTrainedModel, num_kv_heads: int, *, tiled: bool) -> PreTrainedModel:
    """The same model with more KV heads, each the copy of one of its own."""
    config = copy.deepcopy(model.config)
    original, config.num_key_value_heads = config.num_key_value_heads, num_kv_heads
    larger = type(model)(config).eval()
    weights = model.state_dict()
    for name in [name for name in weights if ".k_proj." in name or ".v_proj." in name]:
        heads = weights[name].unflatten(0, (original, WIDTH))
        copies = num_kv_heads // original
        repeated = (
            heads.repeat(copies, *[1] * (heads.dim() - 1)) if tiled else heads.repeat_interleave(copies, 0)
        )
        weights[name] = repeated.flatten(0, 1)
    larger.load_state_dict(weights)
    return larger


@pytest.mark.parametrize("kind", ["LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"])
@pytest.mark.parametrize(("original", "now"), [(2, 8), (2, 4), (4, 8)])
def test_tiled_kv_heads_are_named_with_their_number_and_the_mend(kind: str, original: int, now: int) -> None:
    model = grouped(kind, original)
    converted = written_out(model, now, tiled=True)
    with torch.no_grad():
        assert not torch.allclose(converted(IDS).logits, model(IDS).logits, atol=1e-2), (
            "it is a bad conversion"
        )
    found = check_model(converted)
    assert not found.is_right
    assert said(found) == [("kv-heads-tiled", layer, (), ("key", "value")) for layer in (0, 1)]
    finding = found.findings[0]
    assert finding.numbers == {"num_kv_heads": now, "original_num_kv_heads": original}
    assert [place.head for place in finding.kv_heads] == list(range(now))
    row = " ".join(str(head % original) for head in range(now))
    assert finding.words.startswith(f"its {now} KV heads are {original} in the order {row}: head h and head ")
    assert finding.words.endswith(f"query head h reads KV head h // {HEADS // original}")
    assert finding.mend.startswith(f"convert again with each KV head {now // original} times in its place")
    assert "which weights alone cannot show" in finding.mend
    assert "kv-heads-tiled  layers 0-1: its" in told(found)


@pytest.mark.parametrize(("original", "now"), [(2, 8), (4, 8), (1, 8), (1, 2)])
def test_kv_heads_written_out_in_their_places_are_a_remark(original: int, now: int) -> None:
    model = grouped("Qwen2ForCausalLM", original)
    converted = written_out(model, now, tiled=False)
    with torch.no_grad():
        torch.testing.assert_close(converted(IDS).logits, model(IDS).logits, rtol=0, atol=1e-4)
    found = check_model(converted)
    assert found.is_right
    assert [(each.kind, each.layer) for each in found.remarks] == [
        ("kv-heads-repeated", 0),
        ("kv-heads-repeated", 1),
    ]
    assert found.remarks[0].words.startswith(
        f"its {now} KV heads are {original}, each written out {now // original} times in its place"
    )


def test_a_head_copied_beside_written_out_kv_heads_is_still_found() -> None:
    converted = written_out(grouped("LlamaForCausalLM", 2), 8, tiled=False)
    with torch.no_grad():
        copy_head(converted.model.layers[1].self_attn.q_proj, 2, 6, WIDTH)
    assert said(check_model(converted)) == [("shared-weights", 1, (2, 6), ("query",))]


def test_two_equal_kv_heads_of_one_layer_are_copies_and_no_pattern() -> None:
    model = grouped("LlamaForCausalLM", 2)
    attention = model.model.layers[1].self_attn
    with torch.no_grad():
        copy_head(attention.k_proj, 0, 1, WIDTH)
        copy_head(attention.v_proj, 0, 1, WIDTH)
    found = check_model(model)
    assert said(found) == [("duplicate-kv-heads", 1, (), ("key", "value"))]
    assert found.findings[0].words == (
        "KV heads 0 and 1 have the same W_K and W_V, and the query heads that read them are others"
    )
    assert not found.remarks


@pytest.mark.parametrize(
    ("kinds", "order"),
    [
        ("abcabc", KvOrder("tiled", 3)),
        ("ababab", KvOrder("tiled", 2)),
        ("aabbcc", KvOrder("in place", 3)),
        ("aaaa", KvOrder("in place", 1)),
        ("abcd", None),
        ("abba", None),
        ("aabc", None),
        ("aabba", None),
        ("", None),
    ],
)
def test_order(kinds: str, order: KvOrder | None) -> None:
    assert order_of(kinds) == order
