"""What is declared is checked before anything is asked."""

from __future__ import annotations

import pytest
import torch

from headwise.errors import ArgumentError
from headwise.rope import Rope
from headwise.verbs.check import check
from headwise.verbs.check.compute import check_subject
from headwise.verbs.check.expected import Expected

from .recipe_subject import ROWS_CASE, subject_by


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"num_heads": 0}, "num_heads=0 must be at least 1"),
        ({"num_kv_heads": 2.0}, "num_kv_heads=2.0 is a float; pass an integer"),
        ({"head_dim": 20_000}, "head_dim=20000 is too large; the largest allowed is 16384"),
        ({"value_head_dim": -1}, "value_head_dim=-1 must be at least 1"),
        ({"d_model": True}, "d_model=True is a bool"),
        ({"num_heads": 6, "num_kv_heads": 4}, "num_kv_heads=4 does not divide num_heads=6"),
        ({"axes": "bdq"}, 'axes=\'bdq\' is not known; pass "bhqd", "bqhd", "bqd" or "qbd"'),
        ({"causal": "left"}, 'causal=\'left\' is not known; pass "lower_right", "upper_left", True or False'),
        ({"causal": 1}, "causal=1 is not known"),
        ({"window": 0}, "window=0 must be at least 1"),
        ({"window": 513}, "window=513 is too large; the largest allowed is 512"),
        ({"scale": 0.0}, "scale=0.0 must be a finite number above 0"),
        ({"scale": float("inf")}, "scale=inf must be a finite number above 0"),
        ({"scale": "1"}, "scale='1' must be a finite number above 0"),
        ({"softcap": -2.0}, "softcap=-2.0 must be a finite number above 0"),
        ({"rope": "half_split"}, "rope='half_split' is a str; pass headwise.Rope(base=..., pairing=...)"),
        ({"mask_means": "hide"}, 'mask_means=\'hide\' is not known; pass "attend", "ignore" or "add"'),
    ],
)
def test_what_cannot_be_declared(given, words):
    with pytest.raises(ArgumentError) as caught:
        check(attend, **given)
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize(
    ("seed", "words"), [(-1, "seed=-1 must be at least 0"), (2**32, "seed=4294967296 is too large")]
)
def test_seed_out_of_range(seed, words):
    with pytest.raises(ArgumentError, match=words):
        check(attend, seed=seed)


def test_axes_of_another_form():
    described, _, right = ROWS_CASE
    with pytest.raises(ArgumentError, match='axes="bhqd" does not fit made, which is given rows; pass "bqd"'):
        check_subject(subject_by(right, **described), Expected(axes="bhqd"))


def test_what_is_declared_is_kept_by_name():
    expected = Expected(num_heads=4, causal=False, rope=Rope())
    assert expected.declared() == {"num_heads": 4, "causal": False, "rope": Rope()}


def attend(query, key, value):
    return torch.softmax(query @ key.mT * query.shape[-1] ** -0.5, dim=-1) @ value
