"""The search: one fault, a pair, several that cannot be told apart, or honestly none."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import comb, isfinite

import pytest
import torch
from torch import Tensor

from headwise.verbs.check.asking import Form, Inputs, Role
from headwise.verbs.check.compute import check_subject
from headwise.verbs.check.examining import examine
from headwise.verbs.check.expected import Expected
from headwise.verbs.check.faults import ENTRIES, Entry
from headwise.verbs.check.recipe import Recipe

from .made_subject import MadeSubject
from .recipe_subject import CACHED_CASE, EQUAL_SIZES, HEADS_CASE, INPUTS, ROWS_CASE, subject_by

SINGLES = sum(not entry.is_last_resort for entry in ENTRIES)


def attend(inputs: Inputs, *, power: float = 0.5, softmax_axis: int = -1) -> Tensor:
    """Attention written out, by nobody's recipe."""
    query, key, value = inputs.query, inputs.key, inputs.value
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)
    scores = torch.einsum("bhqd,bhkd->bhqk", query, key) / query.shape[-1] ** power
    if (mask := inputs.options.get(Role.MASK)) is not None:
        scores = scores.masked_fill(~mask, -1e9) if mask.dtype == torch.bool else scores + mask
    return torch.einsum("bhqk,bhkd->bhqd", torch.softmax(scores, dim=softmax_axis), value)


def test_right_is_right():
    result = check_subject(MadeSubject(attend, takes=INPUTS | {Role.MASK}), Expected(axes="bhqd"))
    assert result.is_right
    assert (result.explanations, result.nearest, result.searched) == ((), None, 0)
    assert result.error <= result.allowed < 1e-3
    assert all(probe.is_right for probe in result.probes)


def test_one_fault_is_named_after_one_pass():
    subject = MadeSubject(lambda inputs: attend(inputs, power=1.0))
    result = check_subject(subject, Expected(axes="bhqd"))
    assert result.fault_names == ("scale-squared",)
    assert result.searched == SINGLES
    assert not all(probe.is_right for probe in result.probes)
    assert result.error > result.allowed


def test_two_faults_are_named_as_a_pair():
    subject = MadeSubject(lambda inputs: attend(inputs, power=1.0, softmax_axis=-2))
    (explanation,) = check_subject(subject, Expected(axes="bhqd")).explanations
    assert [fault.name for fault in explanation.faults] == ["scale-squared", "softmax-over-queries"]
    assert explanation.name == "scale-squared and softmax-over-queries"
    assert explanation.error <= explanation.allowed


@pytest.mark.parametrize(
    ("case", "one", "other"),
    [
        (HEADS_CASE, {"scaling": "missing"}, {"kv_heads": "tiled"}),
        (HEADS_CASE, {"causality": "one ahead"}, {"masking": "ignored"}),
        (HEADS_CASE, {"softcapping": "after mask"}, {"bias": "after softmax"}),
        # Alone, neither a scale nor a softmax over queries changes what one key decides.
        (ROWS_CASE, {"scaling": "missing"}, {"softmax": "queries"}),
        # One query behind a cache hides no key, so that a score that hides too little shows only beside this.
        (CACHED_CASE, {"upper_left": True}, {"hidden_score": 0.0}),
        (HEADS_CASE, {"scale_option": "ignored"}, {"padding": "added"}),
        (ROWS_CASE, {"join": "view"}, {"output": "transposed"}),
        (ROWS_CASE, {"split": "view"}, {"scaling": "d_model"}),
    ],
)
def test_pairs_of_any_kind(case, one, other):
    described, expected, right = case
    result = check_subject(subject_by(replace(right, **one, **other), **described), expected)
    names = {entry.fault.name for entry in ENTRIES if one in entry.changes or other in entry.changes}
    assert [{fault.name for fault in each.faults} for each in result.explanations] == [names]


def test_what_no_probe_tells_apart_is_named_together():
    # With as many heads as a head is wide, three ways to scale are one number.
    sizes = EQUAL_SIZES.__class__(num_heads=4, num_kv_heads=4, head_dim=16, value_head_dim=16, d_model=64)
    result = check_subject(
        subject_by(Recipe(scaling="squared"), sizes=sizes, takes=INPUTS), Expected(axes="bhqd")
    )
    assert result.fault_names == ("scale-squared",)
    one_number = EQUAL_SIZES.__class__(num_heads=9, num_kv_heads=9, head_dim=3, value_head_dim=3, d_model=27)
    result = check_subject(
        subject_by(Recipe(scaling="squared"), sizes=one_number, takes=INPUTS), Expected(axes="bhqd")
    )
    assert set(result.fault_names) == {"scale-squared", "scale-by-head-count"}


def test_where_nothing_fits_it_says_so_and_what_is_nearest():
    def odd(inputs: Inputs) -> Tensor:
        return attend(inputs) * (1.0 + 0.1 * inputs.query.mean(dim=-1, keepdim=True))

    result = check_subject(MadeSubject(odd), Expected(axes="bhqd"))
    assert not result.is_right
    assert result.explanations == ()
    assert result.searched > comb(SINGLES, 2)
    assert result.nearest is not None
    assert result.nearest.probes_reproduced < len(result.probes)
    assert result.nearest.error > result.nearest.allowed
    assert isfinite(result.nearest.error)


def test_three_faults_are_not_called_two():
    recipe = Recipe(scaling="missing", kv_heads="tiled", softmax="queries")
    described, expected, _ = HEADS_CASE
    result = check_subject(subject_by(recipe, **described), expected)
    assert not result.is_right
    assert result.explanations == ()


@pytest.mark.parametrize(
    ("declared", "recipe", "name"),
    [
        ({"causal": True}, Recipe(), "causal-missing"),
        ({"window": 4}, Recipe(causal=True), "window-ignored"),
        ({"window": 4, "causal": True}, Recipe(causal=True, window=5), "window-off-by-one"),
        ({"window": 4, "causal": True}, Recipe(causal=True, window=3), "window-off-by-one"),
        ({"softcap": 2.0}, Recipe(), "softcap-ignored"),
        ({"scale": 0.25}, Recipe(scale=1.0), "scale-missing"),
    ],
)
def test_what_is_declared_and_not_done_is_a_fault(declared, recipe, name):
    described, _, _ = ROWS_CASE
    result = check_subject(subject_by(recipe, **described), Expected(**declared))
    assert result.fault_names == (name,)


@pytest.mark.parametrize(
    ("declared", "recipe"),
    [
        ({"causal": True}, Recipe(causal=True)),
        ({"window": 4}, Recipe(causal=True, window=4)),
        ({"softcap": 2.0}, Recipe(softcap=2.0)),
        ({"scale": 0.25}, Recipe(scale=0.25)),
        ({}, Recipe(causal=True, window=4)),
        ({}, Recipe(softcap=50.0, causal=True)),
    ],
)
def test_what_is_declared_and_done_is_right(declared, recipe):
    described, _, _ = ROWS_CASE
    assert check_subject(subject_by(recipe, **described), Expected(**declared)).is_right


def test_axes_that_differ_from_those_declared():
    subject = MadeSubject(_in_other_axes, takes=INPUTS)
    assert check_subject(subject, Expected()).is_right
    assert check_subject(subject, Expected(axes="bqhd")).is_right
    assert check_subject(subject, Expected(axes="bhqd")).fault_names == ("heads-and-sequence-mixed",)


def _in_other_axes(inputs: Inputs) -> Tensor:
    turned = Inputs(*(rows.transpose(1, 2) for rows in (inputs.query, inputs.key, inputs.value)))
    return attend(turned).transpose(1, 2)


def test_rows_given_sequence_first_attend_across_the_batch():
    described, expected, right = ROWS_CASE
    inner = subject_by(right, **described)

    def ask(inputs: Inputs) -> Tensor:
        return inner.answer(inputs, axes="qbd").output

    outer = MadeSubject(ask, readings=inner.readings, **described)
    assert check_subject(outer, expected).fault_names == ("batch-and-sequence-mixed",)
    outer.axes = "qbd"
    assert check_subject(outer, expected).is_right


def test_no_two_entries_share_a_change():
    for one, other in combinations(ENTRIES, 2):
        assert not any(change in other.changes for change in one.changes), (one.fault, other.fault)


def test_form_of_the_rows_case():
    assert ROWS_CASE[0]["form"] is Form.PROJECTED


def test_nan_everywhere_is_explained_by_nothing():
    subject = MadeSubject(lambda inputs: attend(inputs) * torch.nan)
    result = check_subject(subject, Expected(axes="bhqd"))
    assert not result.is_right
    assert (result.explanations, result.nearest, result.searched) == ((), None, 0)


def test_pairs_that_are_ruled_out_would_not_have_fitted():
    described, expected, _ = HEADS_CASE
    subject = subject_by(Recipe(scaling="heads", masking="transposed"), **described)
    search = examine(subject, expected, seed=0).search
    names = {
        "scale-missing",
        "scale-by-head-count",
        "softmax-over-heads",
        "causal-missing",
        "mask-ignored",
        "mask-transposed",
        "padding-ignored",
        "bias-before-scale",
        "kv-heads-tiled",
    }
    few = tuple(entry for entry in ENTRIES if entry.fault.name in names)
    fitting = {
        frozenset({one.fault.name, other.fault.name})
        for one, other in combinations(few, 2)
        if any(
            search.named((Entry(one.fault, ({**change, **more},)),)).explanations
            for change in one.changes
            for more in other.changes
        )
    }
    found = search.named(few).explanations
    assert {frozenset(fault.name for fault in each.faults) for each, _ in found} == fitting
    assert fitting == {frozenset({"scale-by-head-count", "mask-transposed"})}
