"""What a person reads of a view in the terminal."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
from rich.console import Console

from headwise.models.attachment import Unseen
from headwise.models.head_scores import HeadScore, HeadScores
from headwise.models.tokens import Token
from headwise.verbs.view import Comparison, HeadSummary, LayerMaps, ModelFacts, NextToken, View
from headwise.verbs.view.render_text import print_view

FACTS = ModelFacts("tiny-1m", "llama", 2, 3, 1, 8, 64, causal=True)
TOKENS = (
    Token(0, "<s>", "special"),
    Token(1, "The", "text"),
    Token(2, " bank\n", "text"),
    Token(3, " ⟨F0 9F⟩", "bytes"),
)


def summary(layer: int, head: int, number: float) -> HeadSummary:
    return HeadSummary(layer, head, 0, number, number / 8, None, number / 16, 3 * number)


def made(**changes: Any) -> View:
    heads = tuple(summary(place // 3, place % 3, 0.7 + 0.1 * place) for place in range(6))
    view = View(FACTS, "The bank", TOKENS, (NextToken(" of", 0.25),), heads, (), 5.4e-5)
    return replace(view, **changes)


def printed(view: View | Comparison, *, width: int = 100) -> list[str]:
    stream = io.StringIO()
    print_view(view, Console(file=stream, width=width, markup=False, highlight=False, emoji=False))
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def test_the_model_the_tokens_and_the_next_tokens_are_told() -> None:
    lines = printed(made())
    assert lines[0] == "tiny-1m  2 layers x 3 heads of 8, 1 KV head, causal"
    assert lines[1] == "64 bytes of KV cache per token in 16 bits"
    assert lines[3] == r"4 tokens  <s>│The│·bank\n│·⟨F0·9F⟩"
    assert lines[7] == "·of         0.250 ██████"
    assert lines[-2].startswith(
        "Largest difference from eager attention on a probe: 5.4e-05. A weight is where"
    )


def test_no_difference_is_called_none() -> None:
    text = " ".join(printed(made(max_logit_difference=0.0)))
    assert "Largest difference from eager attention on a probe: none. A weight" in text


def test_lines_of_tokens_break_between_tokens() -> None:
    words = ["The", " bank", " 銀行", " raised", " r" + "a" * 40, " rates"]
    tokens = tuple(Token(place, word, "text") for place, word in enumerate(words))
    lines = printed(made(tokens=tokens), width=26)
    start = lines.index("6 tokens  The│·bank│·銀行│")  # a character of these is two cells wide
    assert lines[start + 1 : start + 5] == ["·raised│", "·r" + "a" * 24, "a" * 16 + "│", "·rates"]
    many = printed(made(tokens=tokens[:1] * 1_500))
    assert [line for line in many if line.endswith("│The│The … and 1,100 more")]


def test_the_table_names_the_heads_that_stand_out_beside_the_median() -> None:
    lines = printed(made())
    rows = {line.split()[2]: line for line in lines if line.startswith("highest entropy")}
    assert list(rows) == ["1.2", "1.1"]
    assert rows["1.2"].split() == ["highest", "entropy", "1.2", "0", "1.20", "0.150", "-", "0.075", "3.60"]
    [median] = [line for line in lines if line.startswith("median")]
    assert median.split()[-5:] == ["0.950", "0.119", "-", "0.059", "2.85"]


def test_no_head_stands_out_where_all_measure_the_same() -> None:
    same = made(heads=tuple(summary(0, head, 0.0) for head in range(3)), tokens=TOKENS[1:2])
    assert same.stand_outs() == ()
    lines = printed(same)
    assert lines[3] == "1 token  The"
    assert "No head stands out: all 3 measure the same on this text" in lines
    assert not [line for line in lines if "highest" in line or "lowest" in line]
    [median] = [line for line in lines if line.startswith("median")]
    assert median.split()[-5:] == ["0.000", "0.000", "-", "0.000", "0.000"]


def test_a_head_at_the_median_is_left_out() -> None:
    heads = tuple(summary(0, head, number) for head, number in enumerate([0.5, 0.5, 0.5, 0.9]))
    found = made(heads=heads).stand_outs()
    assert {(item.summary.head, item.highest) for item in found} == {(3, True)}
    assert {item.median for item in found if item.statistic.name == "entropy"} == {
        float(np.median([0.5, 0.9, 0.5, 0.5]))
    }


def test_one_layer_is_told_head_by_head() -> None:
    lines = printed(made(focus_layer=1))
    assert "Layer 1, as layer.head" in lines
    assert [line.split()[0] for line in lines if line.lstrip().startswith("1.")] == ["1.0", "1.1", "1.2"]
    assert not [line for line in lines if "stand" in line]


def scored(count: int) -> HeadScores:
    """Heads of which each scores a little less than the one before."""
    heads = tuple(
        HeadScore(place // 3, place % 3, 0, 0.9 - place / 10, 0.8 - place / 10, 0.7, place / 10)
        for place in range(count)
    )
    return HeadScores("tiny-1m", 64, 4, 0, 129, 64, heads)


def test_the_strongest_heads_are_told_with_scores_and_definitions() -> None:
    lines = printed(made(head_scores=scored(6)), width=80)
    at = lines.index("Strongest heads on 64 random tokens twice, as layer.head")
    assert lines[at + 1].split() == ["score", "1", "2", "3", "4", "5"]
    rows = [line.split() for line in lines[at + 2 : at + 6]]
    assert rows[0] == "previous token 0.0 0.900 0.1 0.800 0.2 0.700 1.0 0.600 1.1 0.500".split()  # noqa: SIM905
    assert rows[1][:5] == ["induction", "0.0", "0.800", "0.1", "0.700"]
    assert rows[2][:6] == ["duplicate", "token", "0.0", "0.700", "0.1", "0.700"]
    assert rows[3][:3] == ["sink", "1.2", "0.500"]
    assert lines[at + 6] == "previous token: mean weight on the token just before"
    assert len(printed(made(head_scores=scored(2)), width=80)[at + 2].split()) == 2 + 2 * 2
    assert not [line for line in printed(made()) if "Strongest" in line]


def test_layers_that_are_not_all_recorded_or_not_all_alike_are_told() -> None:
    layers = tuple(
        LayerMaps(layer, num_heads, 1, none(), none(), none(), {}, None, None, name=f"layers.{layer}.attn")
        for layer, num_heads in ((1, 3), (3, 2))
    )
    unseen = tuple(Unseen(f"layers.{place}.mamba", "computes no softmax attention") for place in range(5))
    facts = replace(FACTS, layers=4)
    lines = printed(made(facts=facts, layers=layers, unseen=unseen, focus_layer=1), width=300)
    assert lines[0] == "tiny-1m  2 of 4 layers (1, 3) x 2 to 3 heads of 8, 1 KV head, causal"
    reason = "(computes no softmax attention)"
    listed = ", ".join(f"layers.{place}.mamba {reason}" for place in range(3))
    assert lines[2] == f"5 modules not recorded: {listed} and 2 more"
    assert "Layer 1, as layer.head (layers.1.attn)" in lines


def none() -> Any:
    return np.zeros((1, 1, 1), np.float32)


def test_cross_attention_tells_who_looks_at_what() -> None:
    lines = printed(made(part="cross", key_tokens=TOKENS[1:3], facts=replace(FACTS, causal=False)))
    assert lines[0].endswith("1 KV head, cross attention, from decoder to encoder")
    assert lines[3] == r"looked at: 2 tokens  The│·bank\n"
    assert lines[4].startswith("looking: 4 tokens  <s>│The│")
    for part, words in (("encoder", "the encoder's self-attention"), ("decoder", "self-attention, causal")):
        assert printed(made(part=part))[0].endswith(words)


def test_an_image_is_told_as_a_grid_of_patches() -> None:
    shown = made(text="cat.png", image_grid=(1, 3))
    assert printed(shown)[3] == "cat.png as 1 x 3 patches behind 1 token of the model's own"
    assert printed(made(text="cat.png", image_grid=(2, 2)))[3] == "cat.png as 2 x 2 patches"


def test_two_views_are_told_with_the_heads_that_differ_most() -> None:
    second = made(
        text="A bank",
        heads=tuple(
            replace(head, entropy=head.entropy + head.head + head.layer / 4, first_token=None)
            for head in made().heads
        ),
        tokens=TOKENS[1:],
    )
    lines = printed(Comparison(made(head_scores=scored(6)), second))
    assert lines.index("First") < lines.index("Second")
    assert "Strongest heads on 64 random tokens twice, as layer.head" in lines
    note = "The texts have 4 and 3 tokens; some numbers depend on the length, entropy and distance most."
    assert note in lines
    at = lines.index("Heads that differ most, as layer.head")
    rows = [line.split() for line in lines[at + 2 :] if line.startswith("entropy")]
    # Numbers that are the same in both are left out, and those that only one of them has.
    assert rows == [
        ["entropy", "1.2", "1.20", "3.45", "+2.25"],
        ["entropy", "0.2", "0.900", "2.90", "+2.00"],
        ["entropy", "1.1", "1.10", "2.35", "+1.25"],
    ]
    assert not [line for line in lines[at:] if line.startswith(("first token", "mean distance"))]


def test_two_views_that_measure_the_same_or_cannot_be_compared_are_told_so() -> None:
    assert "No head differs: all measure the same in both" in printed(Comparison(made(), made()))
    fewer = made(heads=made().heads[:5], tokens=TOKENS[:1])
    lines = printed(Comparison(made(), fewer), width=150)
    assert "The two models cut the text into other tokens (4 and 1)." in lines
    reason = "layer 1 has 3 heads in the first and 2 in the second"
    assert f"The heads do not stand for each other one by one: {reason}." in lines
    other = made(heads=tuple(replace(head, layer=2 * head.layer) for head in made().heads))
    reason = "heads are recorded in layers 0 to 1 in the first and in layers 0, 2 in the second"
    assert f"The heads do not stand for each other one by one: {reason}." in printed(
        Comparison(made(), other), width=150
    )
