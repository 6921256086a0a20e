import io
import re

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from headwise.verbs.explain import Explanation, explain_two_heads
from headwise.verbs.explain.matrices import four_decimals, token_labels
from headwise.verbs.explain.render_text import print_explanation


def told(explanation: Explanation, width: int = 80) -> str:
    stream = io.StringIO()
    print_explanation(
        explanation, Console(file=stream, width=width, markup=False, highlight=False, emoji=False)
    )
    return stream.getvalue()


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_the_story_shows_every_number_of_every_step() -> None:
    found = explain_two_heads()
    text = told(found)
    matrices = [found.input, found.concatenated, found.w_o, found.output]
    for head in found.heads:
        matrices += [head.w_q, head.w_k, head.w_v, head.query, head.key, head.value]
        matrices += [head.scores, head.scaled, head.weights, head.output]
    shown = re.findall(r"-?\d+\.\d{4}", text)
    for number in np.concatenate([matrix.ravel() for matrix in matrices]):
        assert four_decimals(number) in shown
    tables = len(re.findall(r"\w  \[\d+, \d+\]", text))
    assert tables == len(matrices)


def test_rows_of_tables_stand_beside_their_tokens() -> None:
    text = told(explain_two_heads())
    weights = text[text.index("weights  [3, 3]") :].splitlines()
    assert [line.split() for line in weights[1:5]] == [
        ["cat", "sat", "mat"],
        ["cat", "0.4720", "0.2676", "0.2603"],
        ["sat", "0.2635", "0.3618", "0.3746"],
        ["mat", "0.4565", "0.2735", "0.2700"],
    ]


@pytest.mark.parametrize("causal", [False, True])
def test_worked_out_sums_are_right(causal: bool) -> None:
    text = one_line(told(explain_two_heads(causal=causal)))
    number = r"-?\d+\.\d{4}"
    sums = re.findall(rf": ((?:{number} x {number} \+ )+{number} x {number}) = ({number})", text)
    assert len(sums) == 2 * 3 + 1
    for terms, result in sums:
        total = sum(np.prod([float(factor) for factor in term.split(" x ")]) for term in terms.split(" + "))
        assert total == pytest.approx(float(result), abs=3e-4)
    softmaxes = re.findall(rf"exp\(({number})\) / \(((?:exp\({number}\) ?\+? ?)+)\) = ({number})", text)
    assert len(softmaxes) == 2
    for own, row, weight in softmaxes:
        total = sum(np.exp([float(score) for score in re.findall(number, row)]))
        assert np.exp(float(own)) / total == pytest.approx(float(weight), abs=2e-4)


def test_shapes_and_formulas_are_named() -> None:
    text = one_line(told(explain_two_heads()))
    for piece in (
        "Q = X W_Q, K = X W_K, V = X W_V, each [3, 4] x [4, 2] -> [3, 2]",
        "Scores = Q K^T, [3, 2] x [2, 3] -> [3, 3]",
        "scores / sqrt(head_dim) = scores / 1.4142",
        "weights V, [3, 3] x [3, 2] -> [3, 2]",
        "concatenated W_O, [3, 4] x [4, 4] -> [3, 4]",
        "MHA(X) = concat(head_0, head_1) W_O",
    ):
        assert piece in text


def test_masked_scores_are_dots_and_the_mask_is_explained() -> None:
    text = told(explain_two_heads(causal=True))
    masked = text[text.index("masked  [3, 3]") :].splitlines()
    assert [line.split()[1:].count("·") for line in masked[2:5]] == [2, 1, 0]
    assert "does not see later tokens" in text
    assert "masked  [" not in told(explain_two_heads())


def test_shared_kv_heads_are_explained() -> None:
    text = one_line(told(explain_two_heads(d_model=8, num_heads=4, num_kv_heads=2)))
    assert "query heads 0 and 1 read KV head 0; 2 and 3 read KV head 1" in text
    assert "W_K and W_V are those of head 2: both heads read KV head 1" in text
    assert "read KV head" not in told(explain_two_heads())
    of_three = one_line(told(explain_two_heads(d_model=6, num_heads=6, num_kv_heads=2)))
    assert "query heads 0 to 2 read KV head 0; 3 to 5 read KV head 1" in of_three


@pytest.mark.parametrize(
    ("tokens", "sentence"),
    [
        (["cat", "mat"], "The rows are given with the example."),
        (["dog", "owl"], "The rows are drawn after all weights, with seed 3"),
        (["dog", "cat"], "Some rows are given with the example, the others drawn after all weights"),
    ],
)
def test_it_says_where_the_rows_come_from(tokens: list[str], sentence: str) -> None:
    assert sentence in one_line(told(explain_two_heads(tokens=tokens)))


def test_many_heads_are_told_in_part_and_it_is_said() -> None:
    text = told(explain_two_heads(d_model=10, num_heads=5))
    assert "Head 2: output" in text
    assert "Head 3: output" not in text
    assert "Heads 3 to 4\nThe same steps with other numbers; --json has them all." in text
    assert "Head 3: output" in told(explain_two_heads(d_model=8, num_heads=4))


def test_large_matrices_are_cut_and_it_is_said() -> None:
    text = told(explain_two_heads(tokens=[f"t{n}" for n in range(17)], d_model=34))
    assert "12 of 17 rows, 8 of 34 columns; --json has all" in text
    assert "... (30 more terms)" in text


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {
            "tokens": ["a long token that goes on", "日本語トークナイザーです", "x", "x"],
            "d_model": 10,
            "causal": True,
        },
    ],
)
def test_nothing_is_wider_than_the_terminal(width: int, options: dict[str, object]) -> None:
    text = told(explain_two_heads(**options), width)
    assert max(map(cell_len, text.splitlines())) <= width


def test_no_number_is_squeezed_out_of_a_table() -> None:
    options = {"tokens": ["a long token that goes on", "日本語トークナイザーです", "x", "x"], "d_model": 10}
    text = told(explain_two_heads(**options))
    decimals = [
        len(fraction) for fraction in re.findall(r"\d\.(\d+)(?![\d.]|\s*\])", text) if len(fraction) > 1
    ]
    assert set(decimals) == {4}


def test_tokens_cannot_steer_the_terminal_nor_the_markup() -> None:
    text = told(explain_two_heads(tokens=["\x1b[31mred", "[bold]x[/bold]", "two\nlines"]))
    assert "\x1b" not in text
    assert r"\x1b[31mred" in text
    assert "[bold]x[/bo" in text
    assert r"two\nlines" in text


def test_equal_labels_are_told_apart_by_position() -> None:
    assert token_labels(["a", "b", "a"]) == ["a (0)", "b", "a (2)"]
    assert token_labels(["a very long token 1", "a very long token 2"]) == [
        "a very long… (0)",
        "a very long… (1)",
    ]


@pytest.mark.parametrize(("number", "shown"), [(-0.00001, "0.0000"), (1.5, "1.5000"), (float("-inf"), "·")])
def test_numbers_have_four_decimals(number: float, shown: str) -> None:
    assert four_decimals(number) == shown
