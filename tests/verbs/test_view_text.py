"""What a person reads of a view in the terminal."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
from rich.console import Console

from headwise.models.tokens import Token
from headwise.verbs.view import HeadSummary, ModelFacts, NextToken, View
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


def printed(view: View, *, width: int = 100) -> list[str]:
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
