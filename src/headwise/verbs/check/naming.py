"""The search: under which conventions, and with which fault or pair of faults, the numbers are reproduced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import comb

from headwise.verbs.check.asking import Role
from headwise.verbs.check.choices import Choices, is_open_behind_cache, is_two_sided, is_uneven
from headwise.verbs.check.comparing import Distance, Question, worst
from headwise.verbs.check.faults import Change, Entry
from headwise.verbs.check.pairing import possible_pairs
from headwise.verbs.check.recipe import CannotComputeError, Recipe
from headwise.verbs.check.result import Explanation, Fault, Nearest

# What may be unlike the usual, one at a time, where two faults are there at once; all of it would take long.
_BESIDE_PAIRS = frozenset({"rope", "window"})
_MOST_UNLIKE = 3


@dataclass(frozen=True)
class Solution:
    """A recipe that gives every answer, and what it is nearest to not giving."""

    recipe: Recipe
    distance: Distance


@dataclass(frozen=True)
class Naming:
    """What explains the answers of a subject that is wrong.

    - explanations: with the recipes that give its numbers
    - searched: how many faults and pairs were tried
    """

    explanations: tuple[tuple[Explanation, Recipe], ...]
    nearest: Nearest | None
    searched: int


class Search:
    """All questions to one subject, and the conventions that are still possible."""

    def __init__(self, questions: list[Question], choices: Choices) -> None:
        self._questions = questions
        self._choices = choices

    def right(self) -> Solution | None:
        """Return the conventions under which every answer is right, the usual ones first."""
        levels = (self._solved({}, unlike=unlike) for unlike in range(_MOST_UNLIKE + 1))
        return next((solution for solution in levels if solution is not None), None)

    def named(self, entries: tuple[Entry, ...]) -> Naming:
        """Return which fault, or else which pair of them, gives every answer.

        What needs fewer conventions unlike the usual is the better explanation, and one fault than two. An
        answer without a finite number is explained by nothing.
        """
        if not self._questions[0].tells_something:
            return Naming((), None, 0)
        ordinary = [entry for entry in entries if not entry.is_last_resort]
        last = [entry for entry in entries if entry.is_last_resort]
        searches = (
            (len(ordinary), lambda: self._singles(ordinary, unlike=0)),
            (0, lambda: self._singles(ordinary, unlike=1)),
            (len(last), lambda: self._singles(last, unlike=0)),
            (0, lambda: self._singles(last, unlike=1)),
            (comb(len(ordinary), 2), lambda: self._pairs(ordinary, unlike=0)),
            (0, lambda: self._pairs(ordinary, unlike=1)),
        )
        searched = 0
        for more, search in searches:
            searched += more
            if found := search():
                return Naming(tuple(found), None, searched)
        return Naming((), self._nearest(ordinary), searched)

    def distances(self, recipe: Recipe) -> list[Distance]:
        """Return how far every answer is from a recipe's, and what is allowed."""
        return [question.distance(recipe, in_full=True) for question in self._questions]

    def closest_right(self) -> Recipe:
        """Return the right recipe whose answer to the first question is nearest."""
        first = self._questions[0]
        recipes = [Recipe(**always) for always in self._choices.always(unlike=0)]
        return min(recipes, key=lambda recipe: first.distance(recipe).error)

    def _singles(self, entries: list[Entry], *, unlike: int) -> list[tuple[Explanation, Recipe]]:
        found = []
        for entry in entries:
            tried = (self._solved(change, unlike=unlike) for change in entry.changes)
            solution = next((solution for solution in tried if solution is not None), None)
            if solution is not None:
                found.append(_explained((entry.fault,), solution))
        return found

    def _pairs(self, entries: list[Entry], *, unlike: int) -> list[tuple[Explanation, Recipe]]:
        found: dict[tuple[str, str], tuple[Explanation, Recipe]] = {}
        for always in self._choices.always(unlike=unlike, only=_BESIDE_PAIRS):
            for (one, change), (other, more) in possible_pairs(self, self._questions, entries, always):
                names = (one.fault.name, other.fault.name)
                recipe = Recipe(**{**always, **change, **more})
                if names not in found and (solution := self._extended(recipe)):
                    found[names] = _explained((one.fault, other.fault), solution)
        return list(found.values())

    def fits(self, question: Question, recipe: Recipe) -> bool:
        """Whether a recipe gives one answer, whatever conventions it is the first to show."""
        return any(question.distance(chosen).fits for chosen in self.chosen(question, recipe))

    def chosen(self, question: Question, recipe: Recipe) -> list[Recipe]:
        """Return a recipe with each choice of the conventions that one question shows."""
        return [chosen for chosen, _ in self._chosen(question, recipe, frozenset())]

    def _solved(self, changes: Change, *, unlike: int) -> Solution | None:
        for always in self._choices.always(unlike=unlike):
            recipe = _turned(always, changes)
            if solution := self._extended(recipe):
                return solution
        return None

    def _extended(
        self,
        recipe: Recipe,
        place: int = 0,
        decided: frozenset[str] = frozenset(),
        so_far: tuple[Distance, ...] = (),
    ) -> Solution | None:
        """Return the recipe, its open conventions chosen so that it gives every answer from `place` on."""
        if place == len(self._questions):
            return Solution(recipe, worst(list(so_far)))
        question = self._questions[place]
        for chosen, names in self._chosen(question, recipe, decided):
            distance = question.distance(chosen)
            if distance.fits:
                solution = self._extended(chosen, place + 1, decided | names, (*so_far, distance))
                if solution is not None:
                    return solution
        return None

    def _chosen(
        self, question: Question, recipe: Recipe, decided: frozenset[str]
    ) -> Iterator[tuple[Recipe, frozenset[str]]]:
        """Yield the recipe with each choice of the conventions that this question is the first to show."""
        options = question.probe.inputs.options
        opened: dict[str, tuple[Change, ...]] = {}
        if "alignment" not in decided and is_uneven(question.probe, recipe):
            opened["alignment"] = self._choices.alignments()
        if "sides" not in decided and is_two_sided(question.probe, recipe):
            opened["sides"] = self._choices.sides()
        if "cached" not in decided and is_open_behind_cache(question.probe, recipe):
            opened["cached"] = self._choices.behind_cache()
        if "masks" not in decided and Role.MASK in options:
            opened["masks"] = self._choices.masks()
        if "padding" not in decided and Role.PADDING in options:
            opened["padding"] = self._choices.paddings()
        for chosen in _combined(recipe, opened):
            names = frozenset(opened)
            if "empty" not in decided and not question.probe.skips_empty and _has_empty(question, chosen):
                for change in self._choices.empties(chosen):
                    yield replace(chosen, **change), names | {"empty"}
            else:
                yield chosen, names

    def _nearest(self, entries: list[Entry]) -> Nearest | None:
        """Return the single fault, or none, that gives most answers, and among those the least error."""
        candidates: list[tuple[tuple[Fault, ...], Change]] = [((), {})]
        candidates += [((entry.fault,), change) for entry in entries for change in entry.changes]
        best: tuple[tuple[int, float], Nearest] | None = None
        for faults, changes in candidates:
            for always in self._choices.always(unlike=0):
                recipe = _turned(always, changes)
                distances = [question.distance(recipe) for question in self._questions]
                fitting = sum(distance.fits for distance in distances)
                furthest = worst(distances)
                key = (-fitting, furthest.error)
                if best is None or key < best[0]:
                    best = key, Nearest(faults, fitting, furthest.error, furthest.allowed)
        return best[1] if best else None


def _turned(always: Change, changes: Change) -> Recipe:
    return Recipe(**{**always, **changes})


def _has_empty(question: Question, recipe: Recipe) -> bool:
    try:
        return question.exactly.weights(recipe).has_empty
    except CannotComputeError:
        return False


def _combined(recipe: Recipe, opened: Mapping[str, tuple[Change, ...]]) -> Iterator[Recipe]:
    if not opened:
        yield recipe
        return
    name, *others = opened
    for change in opened[name]:
        yield from _combined(replace(recipe, **change), {other: opened[other] for other in others})


def _explained(faults: tuple[Fault, ...], solution: Solution) -> tuple[Explanation, Recipe]:
    distance = solution.distance
    return Explanation(faults, distance.error, distance.allowed), solution.recipe
