"""Every fault of the catalogue is told from every other one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwise.rope import Rope
from headwise.verbs.check.compute import check_subject
from headwise.verbs.check.faults import ENTRIES, FAULTS
from headwise.verbs.check.recipe import Recipe

from .recipe_subject import (
    ADDED_MASKS_CASE,
    CACHED_CASE,
    EQUAL_HEADS_CASE,
    FUSED_CASE,
    HEADS_CASE,
    INTERLEAVED_CASE,
    PADDING_CASE,
    ROWS_CASE,
    subject_by,
)

# The subject in which a fault shows, where it is not a function of heads with every option.
CASES = {
    **dict.fromkeys(
        ("query-and-key-swapped", "key-and-value-swapped", "softmax-over-batch"), EQUAL_HEADS_CASE
    ),
    **dict.fromkeys(
        (
            "heads-split-by-view",
            "heads-joined-by-view",
            "heads-split-in-wrong-order",
            "heads-concatenated-in-wrong-order",
            "projection-biases-ignored",
            "output-projection-missing",
            "output-projection-transposed",
            "batch-and-sequence-mixed",
            "scale-by-d-model",
        ),
        ROWS_CASE,
    ),
    **dict.fromkeys(
        (
            "rotary-interleaved",
            "rotary-offset-ignored",
            "rotary-on-values",
            "rotary-on-query-only",
            "rotary-on-key-only",
            "rotary-over-heads",
            "rotary-missing",
            "rotary-base-wrong",
            "cache-ignored",
            "window-sees-ahead",
        ),
        CACHED_CASE,
    ),
    "rotary-half-split": INTERLEAVED_CASE,
    "float-mask-as-boolean": ADDED_MASKS_CASE,
}
ONLY_IN = {"fused view": FUSED_CASE, "fused head view": FUSED_CASE, "width major": ROWS_CASE}
EVERY_CHANGE = [(entry, change) for entry in ENTRIES for change in entry.changes]


def named(entry_name, change, case):
    described, expected, right = case
    subject = subject_by(replace(right, **change), **described)
    return check_subject(subject, expected)


@pytest.mark.parametrize(
    ("entry", "change"),
    EVERY_CHANGE,
    ids=[f"{entry.fault.name}-{'-'.join(map(str, change.values()))}" for entry, change in EVERY_CHANGE],
)
def test_each_form_of_each_fault_is_named_and_nothing_else(entry, change):
    case = CASES.get(entry.fault.name, HEADS_CASE)
    if "projections_swapped" in change:
        case = ROWS_CASE
    if change == {"padding": "inverted"}:
        case = PADDING_CASE
    if change == {"masking": "nonzero ignores"}:
        case = ADDED_MASKS_CASE
    if entry.fault.name == "heads-split-by-view":
        case = ONLY_IN.get(change["split"], ROWS_CASE)
    result = named(entry.fault.name, change, case)
    assert result.fault_names == (entry.fault.name,)
    assert not result.is_right
    assert result.explanations[0].error <= result.explanations[0].allowed


@pytest.mark.parametrize(
    "case",
    [HEADS_CASE, EQUAL_HEADS_CASE, ROWS_CASE, FUSED_CASE, CACHED_CASE, INTERLEAVED_CASE],
    ids=["heads", "equal heads", "rows", "fused", "cached", "interleaved"],
)
def test_without_a_fault_it_is_right(case):
    result = named("", {}, case)
    assert result.is_right
    assert result.explanations == ()


def test_names_are_ids_and_words_are_sentences():
    names = [fault.name for fault in FAULTS]
    assert len(names) == len(set(names)) >= 30
    for fault in FAULTS:
        assert fault.name == fault.name.lower()
        assert fault.name.replace("-", "").isalnum()
        for words in (fault.what, fault.mend):
            assert words[0].isupper()
            assert words.endswith((".", ")"))


def test_rope_of_the_cached_case_is_none_of_the_wrong_bases():
    wrong = {change["rotary_base"] for entry, change in EVERY_CHANGE if "rotary_base" in change}
    assert CACHED_CASE[2].rope is not None
    assert CACHED_CASE[2].rope.base not in wrong
    assert Rope().base in wrong
    assert Recipe().rope is None
