"""Which pairs of faults can give all answers at all: most are ruled out by the first question or two.

Where neither of two faults changes an answer alone, it must be right without them. Where one does, they are
computed together, even if the other changes nothing by itself: a score that hides too little shows only
beside a fault that hides more, a wrong scale only beside a softmax that does not decide for one key.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Protocol

from torch import Tensor

from headwise.verbs.check.comparing import Question
from headwise.verbs.check.faults import Change, Entry
from headwise.verbs.check.recipe import CannotComputeError, Recipe

Form = tuple[Entry, Change]
"""A fault in one of its forms."""


class Fitting(Protocol):
    """Says whether a recipe gives an answer, its open conventions aside."""

    def fits(self, question: Question, recipe: Recipe) -> bool:
        """Whether it does under some choice of them."""

    def chosen(self, question: Question, recipe: Recipe) -> list[Recipe]:
        """Return the recipe with each choice of them."""


def possible_pairs(
    search: Fitting, questions: list[Question], entries: list[Entry], always: Change
) -> Iterator[tuple[Form, Form]]:
    """Yield the pairs of faults that no question rules out, under what the subject does unasked."""
    forms = [(entry, change) for entry in entries for change in entry.changes]
    pairs = [
        (one, other)
        for one, other in combinations(range(len(forms)), 2)
        if forms[one][0] is not forms[other][0] and not forms[one][1].keys() & forms[other][1].keys()
    ]
    plain = Recipe(**always)
    for question in questions:
        used = sorted({place for pair in pairs for place in pair})
        active = {place for place in used if _is_active(search, question, always, forms[place][1])}
        is_right = search.fits(question, plain)
        pairs = [
            (one, other)
            for one, other in pairs
            if (
                search.fits(question, Recipe(**{**always, **forms[one][1], **forms[other][1]}))
                if one in active or other in active
                else is_right
            )
        ]
        if not pairs:
            return
    yield from ((forms[one], forms[other]) for one, other in pairs)


def _is_active(search: Fitting, question: Question, always: Change, change: Change) -> bool:
    """Whether a fault changes an answer by itself."""
    with_it = search.chosen(question, Recipe(**{**always, **change}))
    without = search.chosen(question, Recipe(**always))
    if len(with_it) != len(without):
        return True  # it opens other conventions, or closes them
    return any(
        _differ(_output(question, one), _output(question, other))
        for one, other in zip(with_it, without, strict=True)
    )


def _output(question: Question, recipe: Recipe) -> Tensor | None:
    try:
        return question.exactly.answer(recipe).output
    except CannotComputeError:
        return None


def _differ(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is not other
    return one.shape != other.shape or not bool(((one == other) | (one.isnan() & other.isnan())).all())
