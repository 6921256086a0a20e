"""Which pairs of faults can give all answers at all: most are ruled out by what each fault does alone.

A fault that changes nothing in a question leaves it to the other one. So where neither is at work, the answer
must be right without them; where one is, it must give the answer alone; only where both are need they be
computed together.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple, Protocol

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


class _Alone(NamedTuple):
    """What a fault does by itself in one question."""

    is_active: bool
    fits: bool


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
        alone = {
            place: _alone(search, question, plain, Recipe(**{**always, **forms[place][1]})) for place in used
        }
        is_right = search.fits(question, plain)
        pairs = [pair for pair in pairs if _may_fit(alone[pair[0]], alone[pair[1]], is_right)]
        both = [pair for pair in pairs if alone[pair[0]].is_active and alone[pair[1]].is_active]
        ruled_out = {
            (one, other)
            for one, other in both
            if not search.fits(question, Recipe(**{**always, **forms[one][1], **forms[other][1]}))
        }
        pairs = [pair for pair in pairs if pair not in ruled_out]
        if not pairs:
            return
    yield from ((forms[one], forms[other]) for one, other in pairs)


def _may_fit(one: _Alone, other: _Alone, is_right: bool) -> bool:
    if one.is_active and other.is_active:
        return True
    if one.is_active or other.is_active:
        return one.fits if one.is_active else other.fits
    return is_right


def _alone(search: Fitting, question: Question, plain: Recipe, recipe: Recipe) -> _Alone:
    choices = search.chosen(question, recipe)
    beside = search.chosen(question, plain)
    if len(choices) == len(beside):
        pairs = zip(choices, beside, strict=True)
        is_active = any(_differ(_output(question, one), _output(question, other)) for one, other in pairs)
    else:
        is_active = True  # it opens other conventions, or closes them
    return _Alone(is_active, any(question.distance(chosen).fits for chosen in choices))


def _output(question: Question, recipe: Recipe) -> Tensor | None:
    try:
        return question.exactly.answer(recipe).output
    except CannotComputeError:
        return None


def _differ(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is not other
    return one.shape != other.shape or not bool(((one == other) | (one.isnan() & other.isnan())).all())
