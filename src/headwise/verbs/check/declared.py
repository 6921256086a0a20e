"""What was declared and is not done, of an attention that is right by other conventions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from headwise.rope import Rope
from headwise.verbs.check.asking import Role, Subject
from headwise.verbs.check.choices import Choices
from headwise.verbs.check.examined import Examined
from headwise.verbs.check.expected import Expected
from headwise.verbs.check.interview import order_matters
from headwise.verbs.check.naming import Search
from headwise.verbs.check.recipe import Recipe
from headwise.verbs.check.result import Departure

# What may be declared of what an attention does; the others are sizes, and axes in which it is asked.
_OF_WHAT_IT_DOES = ("causal", "window", "scale", "softcap", "rope", "mask_means")


class Undeclared(NamedTuple):
    """The conventions by which an attention is right, and what of them is not as declared."""

    recipe: Recipe
    departures: tuple[Departure, ...]


def undeclared(examined: Examined, expected: Expected) -> Undeclared | None:
    """Return by which other conventions all answers are right; None where there are none."""
    left_open = replace(expected, **dict.fromkeys(_OF_WHAT_IT_DOES))
    if examined.solution is not None or left_open == expected:
        return None
    choices = Choices(
        examined.subject,
        left_open,
        readings=len(examined.readings),
        boolean_masks=any(question.probe.name == "mask" for question in examined.questions),
        order_matters=order_matters(examined.steadiness.ask, examined.asked[0].probe),
    )
    solution = Search(examined.questions, choices).right()
    if solution is None:
        return None
    departures = tuple(_departures(examined.subject, expected, solution.recipe))
    return Undeclared(solution.recipe, departures) if departures else None


def _departures(subject: Subject, expected: Expected, recipe: Recipe) -> Iterator[Departure]:
    by_flag = Role.CAUSAL in subject.takes
    causal = expected.causal
    if causal is not None and not by_flag and bool(causal) != recipe.causal:
        yield Departure("causal", str(causal), str(recipe.causal))
    elif isinstance(causal, str) and causal != recipe.alignment:
        yield Departure("causal alignment", causal, recipe.alignment)
    for name in ("window", "scale", "softcap", "rope"):
        declared, found = getattr(expected, name), getattr(recipe, name)
        if declared is not None and declared != found:
            yield Departure(name, _words(name, declared), _words(name, found))
    meant = recipe.mask_means if Role.MASK in subject.takes else recipe.padding_means
    if expected.mask_means is not None and not _means(expected.mask_means, meant, recipe):
        yield Departure("mask means", expected.mask_means, meant)


def _means(declared: str, found: str, recipe: Recipe) -> bool:
    return found == declared or (declared == "add" and recipe.float_mask == "add")


def _words(name: str, value: Any) -> str:
    if value is None:
        return "head_dim ** -0.5" if name == "scale" else "none"
    return f"{value.pairing}, base {value.base:g}" if isinstance(value, Rope) else f"{value:g}"
