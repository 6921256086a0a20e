"""The texts that heads are scored on: random, repeated once, nothing special drawn."""

import pytest

from headwise.models.head_scores.random_tokens import repeated_random_tokens


@pytest.mark.parametrize(
    ("name", "before", "after"), [("toy", [0], []), ("smollm2", [], []), ("minilm", [101], [102])]
)
def test_each_text_is_different_tokens_twice_between_special_ones(request, name, before, after):
    opened = request.getfixturevalue(name)
    ids, start = repeated_random_tokens(opened, num_tokens=97, batch=3, seed=0)
    assert ids.shape == (3, len(before) + 2 * 97 + len(after))
    assert start == len(before)
    for row in ids.tolist():
        drawn, again = row[start : start + 97], row[start + 97 : start + 194]
        assert (row[:start], row[start + 194 :]) == (before, after)
        assert drawn == again
        assert len(set(drawn)) == 97
    assert ids[0].tolist() != ids[1].tolist()


@pytest.mark.parametrize("name", ["toy", "minilm"])
def test_every_plain_token_can_be_drawn_and_no_special_one(request, name):
    opened = request.getfixturevalue(name)
    special = set(opened.tokenizer.all_special_ids)
    drawn = set()
    for seed in range(40 if name == "toy" else 1):
        ids, start = repeated_random_tokens(opened, num_tokens=211, batch=5, seed=seed)
        drawn |= set(ids[:, start : start + 211].flatten().tolist())
    assert not drawn & special
    if name == "toy":
        assert drawn == set(range(1, len(opened.tokenizer)))


def test_the_seed_decides(toy):
    settings = {"num_tokens": 31, "batch": 2}
    first, _ = repeated_random_tokens(toy, **settings, seed=4)
    again, _ = repeated_random_tokens(toy, **settings, seed=4)
    other, _ = repeated_random_tokens(toy, **settings, seed=5)
    assert (first == again).all()
    assert (first != other).any()
