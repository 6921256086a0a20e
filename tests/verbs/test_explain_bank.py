import dataclasses
import io
import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from headwise import reference
from headwise.errors import ArgumentError
from headwise.verbs.explain.bank import BankExplanation, Routing, explain_bank
from headwise.verbs.explain.bank.render_json import to_json
from headwise.verbs.explain.bank.render_text import print_bank
from headwise.verbs.explain.bank.routing import mixed, shares_told, softmax
from headwise.verbs.explain.bank.scaling import entropy, gradient_norm, measure

RAISED, RATES = 2, 3
SEEDS = (3, 17)


@pytest.fixture(scope="module", params=SEEDS)
def found(request: pytest.FixtureRequest) -> BankExplanation:
    return explain_bank(seed=request.param)


def told(explanation: BankExplanation, width: int = 80) -> str:
    stream = io.StringIO()
    print_bank(explanation, Console(file=stream, width=width, markup=False, highlight=False, emoji=False))
    return stream.getvalue()


def test_heads_are_attention_by_its_definition(found: BankExplanation) -> None:
    for head in (*found.one.heads, *found.two.heads):
        expected = reference.attention(
            head.query[None, None, None], head.key[None, None], found.contents[None, None]
        )
        np.testing.assert_allclose(head.weights, expected.weights[0, 0, 0], rtol=0, atol=1e-14)
        np.testing.assert_allclose(head.output, expected.output[0, 0, 0], rtol=0, atol=1e-14)
        asked = [found.tokens.index(token) for token in head.wishes]
        assert head.scaled[asked].tolist() == pytest.approx([found.strength] * len(asked), abs=1e-12)
        assert np.delete(head.scaled, asked).tolist() == [0.0] * (4 - len(asked))


def test_one_head_and_two_have_the_same_sizes(found: BankExplanation) -> None:
    assert [sum(head.head_dim for head in routing.heads) for routing in (found.one, found.two)] == [8, 8]
    assert found.one.heads[0].wishes == ("raised", "rates")
    assert [head.wishes for head in found.two.heads] == [("raised",), ("rates",)]


def test_one_head_averages_two_wishes_and_two_heads_fetch_each(found: BankExplanation) -> None:
    e = np.exp(found.strength)
    np.testing.assert_allclose(found.one.heads[0].weights[[RAISED, RATES]], e / (2 * e + 2), rtol=1e-12)
    first, second = (head.weights for head in found.two.heads)
    assert first[RAISED] == pytest.approx(e / (e + 3))
    assert second[RATES] == pytest.approx(e / (e + 3))


@pytest.mark.parametrize("name", ["one", "two"])
def test_what_is_measured_is_what_the_formula_says(found: BankExplanation, name: str) -> None:
    routing: Routing = getattr(found, name)
    np.testing.assert_allclose(routing.measured, routing.exact, rtol=0, atol=0.03)
    assert routing.exact.sum() == pytest.approx(len(routing.heads), abs=1e-9)


def test_what_arrives_is_the_mean_from_one_head_and_the_content_from_two(found: BankExplanation) -> None:
    wanted = found.contents[[RAISED, RATES]]
    np.testing.assert_allclose(found.two.delivered, wanted, rtol=0, atol=0.25)
    mean = wanted.mean(axis=0)
    np.testing.assert_allclose(found.one.delivered, [mean, mean], rtol=0, atol=0.25)
    assert np.abs(found.one.delivered - wanted).max() > 3 * np.abs(found.two.delivered - wanted).max()


@given(st.lists(st.floats(-30, 30), min_size=4, max_size=4))
@settings(deadline=None)
def test_no_weights_of_one_head_give_more_than_half_to_the_weaker_wish(scores: list[float]) -> None:
    weights = softmax(np.array(scores))
    assert min(weights[RAISED], weights[RATES]) <= 0.5 + 1e-12
    assert shares_told(weights[None])[[RAISED, RATES]].mean() <= 0.5 + 1e-9


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
@settings(deadline=None, max_examples=30)
def test_shares_add_up_to_the_number_of_heads_that_differ(seed: int, heads: int) -> None:
    weights = softmax(np.random.default_rng(seed).standard_normal((heads, 5)) * 3)
    assert shares_told(weights).sum() == pytest.approx(heads, abs=1e-6)
    twice = np.concatenate([weights, weights])
    assert shares_told(twice).sum() == pytest.approx(heads, abs=1e-6)


def test_shares_are_those_of_the_best_linear_guess() -> None:
    weights = softmax(np.random.default_rng(7).standard_normal((2, 5)))
    # Independent contents of variance 1: covariances give the guess and what it misses.
    guess = weights.T @ np.linalg.inv(weights @ weights.T) @ weights
    missed = np.diag((np.eye(5) - guess) @ (np.eye(5) - guess).T)
    np.testing.assert_allclose(shares_told(weights), 1 - missed, rtol=0, atol=1e-9)


def test_asking_for_one_wish_more_strongly_takes_from_the_other(found: BankExplanation) -> None:
    assert [mix.second for mix in found.mixes] == [0.0, 0.4, 0.5, 0.6, 1.0]
    first, second = zip(*(mix.exact for mix in found.mixes), strict=True)
    assert sorted(first, reverse=True) == list(first)
    assert sorted(second) == list(second)
    np.testing.assert_array_equal(mixed(0.5).weights, found.one.heads[0].weights)


def test_scores_spread_with_the_square_root_of_the_width(found: BankExplanation) -> None:
    assert [point.head_dim for point in found.scaling] == [2**power for power in range(2, 11)]
    for point in found.scaling:
        assert point.deviation == pytest.approx(point.head_dim**0.5, rel=0.05)


def test_without_scaling_softmax_saturates_and_with_it_nothing_changes(found: BankExplanation) -> None:
    undivided = [point.entropy.median for point in found.scaling]
    assert sorted(undivided, reverse=True) == undivided
    assert undivided[-1] < 0.05
    assert found.scaling[-1].gradient.median < 0.01 < found.scaling[0].gradient.median
    # Scores of variance 1: log(keys) - 1/2 for many keys.
    for point in found.scaling[2:]:
        assert point.entropy_scaled.median == pytest.approx(np.log(found.keys) - 0.5, abs=0.15)
        assert point.gradient_scaled.median == pytest.approx(
            found.scaling[-1].gradient_scaled.median, rel=0.1
        )


def test_every_spread_is_in_order_and_within_its_bounds(found: BankExplanation) -> None:
    for point in found.scaling:
        for name, most in (("entropy", np.log(found.keys)), ("gradient", 0.5)):
            for spread in (getattr(point, name), getattr(point, f"{name}_scaled")):
                assert 0 <= spread.low <= spread.median <= spread.high <= most


def test_at_width_one_the_division_changes_nothing() -> None:
    point = measure(1, np.random.default_rng(5))
    assert point.entropy == point.entropy_scaled
    assert point.gradient == point.gradient_scaled


@pytest.mark.parametrize("strength", [0.1, 1.0, 9.0])
def test_the_gradient_is_that_of_the_softmax(strength: float) -> None:
    scores = np.random.default_rng(11).standard_normal(7) * strength
    step = 1e-6
    by_differences = np.stack(
        [(softmax(scores + move) - softmax(scores - move)) / (2 * step) for move in np.eye(7) * step]
    )
    assert gradient_norm(softmax(scores)) == pytest.approx(np.linalg.norm(by_differences), abs=1e-8)


def test_entropy_of_equal_weights_and_of_one() -> None:
    weights = np.array([[0.25, 0.25, 0.25, 0.25], [0.0, 1.0, 0.0, 0.0]])
    np.testing.assert_allclose(entropy(weights), [np.log(4), 0.0], rtol=0, atol=1e-15)
    assert gradient_norm(weights)[1] == 0.0


def test_a_seed_gives_the_same_numbers_and_another_other_ones(found: BankExplanation) -> None:
    assert to_json(explain_bank(seed=found.seed)) == to_json(found)
    other = explain_bank(seed=found.seed + 1)
    assert not np.array_equal(other.contents, found.contents)
    assert other.scaling != found.scaling


def test_the_result_cannot_be_changed(found: BankExplanation) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.seed = 4
    for array in (found.contents, found.one.measured, found.two.heads[1].weights, found.mixes[0].exact):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7.0


def test_json_has_every_number(found: BankExplanation) -> None:
    document = json.loads(json.dumps(to_json(found), allow_nan=False))
    assert document["contents"]["values"] == found.contents.tolist()
    for name, routing in (("one_head", found.one), ("two_heads", found.two)):
        assert document[name]["measured"] == routing.measured.tolist()
        assert document[name]["delivered"] == {"shape": [2, 4], "values": routing.delivered.tolist()}
        assert [head["weights"] for head in document[name]["heads"]] == [
            head.weights.tolist() for head in routing.heads
        ]
    assert document["scaling"]["points"] == [dataclasses.asdict(point) for point in found.scaling]
    assert (document["scaling"]["draws"], document["scaling"]["keys"]) == (found.draws, found.keys)


def test_the_story_shows_the_numbers_that_were_computed(found: BankExplanation) -> None:
    text = told(found, 120)
    shown = re.findall(r"-?\d+\.\d+", text)
    routings = (found.one, found.two)
    for array in (found.contents, *(head.weights for routing in routings for head in routing.heads)):
        assert {f"{number:.4f}" for number in array.ravel()} <= set(shown)
    for routing in routings:
        for share in (*routing.measured[2:], *routing.exact[2:]):
            assert f"{share:.3f}" in shown
    for point in found.scaling:
        for spread in (point.entropy, point.entropy_scaled, point.gradient, point.gradient_scaled):
            assert f"{spread.median:.3f} ({spread.low:.3f} to {spread.high:.3f})" in text


@pytest.mark.parametrize("width", [80, 120])
def test_nothing_is_wider_than_the_terminal(found: BankExplanation, width: int) -> None:
    assert max(map(cell_len, told(found, width).splitlines())) <= width


@pytest.mark.parametrize("seed", [-1, 2**32, True, 3.0, None])
def test_what_is_no_seed_is_refused(seed: object) -> None:
    with pytest.raises(
        ArgumentError, match=rf"^seed={seed!r} is no seed; pass an integer from 0 to 4294967295$"
    ):
        explain_bank(seed=seed)
