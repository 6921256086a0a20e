"""Heads of the toy model score what they were built for; those of real models what their weights say."""

import re
from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor

from headwise.errors import ArgumentError, UnsupportedError
from headwise.models.attachment import attach
from headwise.models.head_scores import SCORES, HeadScore, HeadScores, compute, head_scores
from headwise.models.opening.opened_model import OpenedModel
from headwise.models.toy_induction.weights import INDUCTION_HEAD, PREVIOUS_TOKEN_HEAD

from .eager_scores import eager_scores

PATTERNS = ("previous_token", "induction", "duplicate_token")
DOCS = Path(__file__).parents[3] / "docs" / "scores.md"


def tiny(toy: OpenedModel, kind: str, **settings) -> OpenedModel:
    """A model with random weights that reads the toy model's tokens."""
    make = getattr(transformers, kind)
    sizes = {"hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4}
    special = {"bos_token_id": 0, "eos_token_id": None, "pad_token_id": None}
    config = make.config_class(vocab_size=len(toy.tokenizer), **sizes, **special, **settings)
    torch.manual_seed(3)
    return OpenedModel("tiny", make(config).eval(), toy.tokenizer, toy.folder, "folder")


def assert_equal_to_eager(opened: OpenedModel, scores: HeadScores) -> dict[str, Tensor]:
    """Return the scores from eager weights, `[layers, heads]`, after comparing them."""
    settings = {"num_tokens": scores.num_tokens, "batch": scores.batch, "seed": scores.seed}
    by_eager = eager_scores(opened, **settings)
    for name, expected in by_eager.items():
        found = torch.tensor([getattr(head, name) for head in scores.heads], dtype=torch.float64)
        torch.testing.assert_close(found.reshape(expected.shape), expected, atol=1e-5, rtol=0)
    return by_eager


@pytest.mark.parametrize("num_tokens", [31, 64, 128])
def test_the_two_heads_of_the_toy_model_score_and_no_other(toy, num_tokens):
    scores = head_scores(toy, num_tokens=num_tokens)
    built_for = {PREVIOUS_TOKEN_HEAD: "previous_token", INDUCTION_HEAD: "induction"}
    assert len(scores.heads) == 8
    for head in scores.heads:
        for name in PATTERNS:
            score = getattr(head, name)
            if built_for.get((head.layer, head.head)) == name:
                assert 0.99 < score <= 1 + 1e-6
            else:
                assert score < 0.1, f"head {head.layer}.{head.head} has {name} {score}"
    assert [(head.layer, head.head) for head in scores.strongest("induction", count=1)] == [INDUCTION_HEAD]


def test_the_heads_of_the_toy_model_that_rest_are_sinks(toy):
    scores = head_scores(toy)
    # The induction head rests on the first token as long as nothing is repeated.
    assert {(head.layer, head.head) for head in scores.heads if head.sink > 0.99} == {(0, 2), (1, 1), (1, 2)}
    assert scores.sink_share == 3 / 8
    assert scores.sink_rows == 64
    assert head_scores(toy, num_tokens=5).sink_rows == 11


def test_scores_of_a_decoder_are_those_of_its_eager_weights(smollm2):
    scores = head_scores(smollm2)
    assert [(head.layer, head.head, head.kv_head) for head in scores.heads] == [
        (layer, head, head // 3) for layer in range(30) for head in range(9)
    ]
    expected = assert_equal_to_eager(smollm2, scores)
    for name in ("previous_token", "induction"):
        strongest = [head.layer * 9 + head.head for head in scores.strongest(name)]
        assert strongest == expected[name].flatten().topk(5).indices.tolist()
    # The page of definitions shows them.
    rows = zip(scores.strongest("previous_token"), scores.strongest("induction"), strict=True)
    lines = [f"| {_shown(one, 'previous_token')} | {_shown(other, 'induction')} |" for one, other in rows]
    assert re.findall(r"^\| \d+\.\d+: .*\|$", DOCS.read_text(encoding="utf-8"), re.MULTILINE) == lines


def _shown(head: HeadScore, name: str) -> str:
    return f"{head.layer}.{head.head}: {getattr(head, name):.2f}"


def test_scores_of_an_encoder_are_those_of_its_eager_weights(minilm):
    assert_equal_to_eager(minilm, head_scores(minilm, num_tokens=53, batch=2, seed=7))


@pytest.mark.parametrize("window", [5, 48])
def test_what_a_window_hides_counts_as_nothing(toy, window):
    windowed = tiny(toy, "MistralForCausalLM", num_key_value_heads=2, sliding_window=window)
    scores = head_scores(windowed, num_tokens=23, batch=3, seed=1)
    assert_equal_to_eager(windowed, scores)
    assert {head.kv_head for head in scores.heads if head.head >= 2} == {1}
    assert max(head.induction for head in scores.heads) == 0 or window > 22


def test_no_weights_are_kept(toy, monkeypatch):
    seen = []

    def watched(model, **options):
        seen.append(attach(model, **options))
        return seen[-1]

    monkeypatch.setattr(compute, "attach", watched)
    head_scores(toy, num_tokens=67, batch=2)
    for layer in seen[0].layers:
        evidence = seen[0].evidence[layer]
        kept = {name: tensor for name, tensor in vars(evidence).items() if torch.is_tensor(tensor)}
        assert "at_offsets" in kept
        assert max(tensor.numel() for tensor in kept.values()) == 2 * 4 * 135 * 2


def test_the_same_seed_gives_the_same_scores_and_another_others(toy):
    model = tiny(toy, "LlamaForCausalLM")
    first = head_scores(model, num_tokens=7, seed=1)
    assert head_scores(model, num_tokens=7, seed=1) == first
    assert head_scores(model, num_tokens=7, seed=2).heads != first.heads


def test_the_model_is_left_as_it_was(toy):
    before = toy.model.config._attn_implementation
    head_scores(toy, num_tokens=5)
    assert toy.model.config._attn_implementation == before


def test_strongest_heads_come_in_order_and_equal_ones_as_they_stand():
    heads = tuple(HeadScore(0, head, 0, score, 0.0, 0.0, 0.0) for head, score in enumerate((0.2, 0.7, 0.7)))
    scores = HeadScores("model", 64, 4, 0, 129, 64, heads)
    assert [head.head for head in scores.strongest("previous_token", count=2)] == [1, 2]
    assert len(scores.strongest("sink")) == 3


def test_each_score_is_defined_where_it_is_shown():
    assert [score.name for score in SCORES] == ["previous_token", "induction", "duplicate_token", "sink"]
    text = DOCS.read_text(encoding="utf-8")
    assert all(f"## {score.label.capitalize()}" in text for score in SCORES)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"num_tokens": 1}, r"num_tokens=1 must be at least 2"),
        ({"batch": 0}, r"batch=0 must be at least 1"),
        ({"seed": -1}, r"seed=-1 must be at least 0"),
        (
            {"num_tokens": 1000},
            r"num_tokens=1000 different tokens cannot be drawn: toy-induction has 980 that",
        ),
    ],
)
def test_numbers_that_cannot_be_are_refused(toy, settings, match):
    with pytest.raises(ArgumentError, match=match):
        head_scores(toy, **settings)


def test_a_text_longer_than_the_positions_is_refused_with_the_longest(toy):
    short = tiny(toy, "LlamaForCausalLM", max_position_embeddings=32)
    with pytest.raises(
        ArgumentError, match=r"makes texts of 33 tokens, and tiny has positions for 32; use at most 15"
    ):
        head_scores(short, num_tokens=16)
    assert head_scores(short, num_tokens=15).seq_len == 31


def test_an_encoder_decoder_is_refused(toy):
    model = transformers.T5ForConditionalGeneration(
        transformers.T5Config(vocab_size=97, d_model=32, d_kv=8, d_ff=40, num_layers=2, num_heads=4)
    )
    with pytest.raises(UnsupportedError, match=r"both is an encoder-decoder, and the scores are of one text"):
        head_scores(OpenedModel("both", model, toy.tokenizer, toy.folder, "folder"))


def test_a_model_that_reads_no_text_is_refused(toy):
    opened = OpenedModel("seer", toy.model, None, toy.folder, "folder")
    with pytest.raises(UnsupportedError, match=r"seer reads no text \(its input is input_ids\)"):
        head_scores(opened)


@pytest.mark.parametrize(
    ("asked", "match"),
    [
        (
            {"score": "copying"},
            r"score='copying' is none of previous_token, induction, duplicate_token, sink",
        ),
        ({"score": "sink", "count": 0}, r"count=0 must be at least 1"),
    ],
)
def test_what_there_is_no_ranking_of_is_refused(asked, match):
    scores = HeadScores("model", 64, 4, 0, 129, 64, (HeadScore(0, 0, 0, 0.1, 0.1, 0.1, 0.1),))
    with pytest.raises(ArgumentError, match=match):
        scores.strongest(**asked)
