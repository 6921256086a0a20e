"""What is not wrong but goes wrong easily."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.verbs.check.asking import Role
from headwise.verbs.check.conventions import Seen
from headwise.verbs.check.examined import Examined
from headwise.verbs.check.faults import FAULTS
from headwise.verbs.check.recipe import Recipe
from headwise.verbs.check.result import Caution

_BY_NAME = {fault.name: fault for fault in FAULTS}


def cautions_of(examined: Examined, recipe: Recipe, seen: Seen) -> tuple[Caution, ...]:
    """Return what is not wrong but goes wrong easily, under the names of the faults it leads to."""
    return (
        *_about_masks(examined, recipe, seen),
        *_about_alignment(examined, recipe),
        *_about_calls(examined),
    )


def _caution(name: str, what: str | None = None) -> Caution:
    fault = _BY_NAME[name]
    return Caution(name, what or fault.what, fault.mend)


def _about_masks(examined: Examined, recipe: Recipe, seen: Seen) -> Iterator[Caution]:
    if Role.MASK in examined.subject.takes:
        if recipe.mask_means == "add":
            yield _caution(
                "mask-added-as-one",
                "A boolean mask is added to the scores as 1, and hides nothing; a float mask is understood.",
            )
        if recipe.float_mask in ("attend", "ignore"):
            yield _caution(
                "float-mask-as-boolean",
                "A float mask is read as a boolean one, by zero or not zero; a bias would be lost in it.",
            )
    if seen.empty == "nan":
        yield _caution("empty-rows-nan")
    if seen.leaks:
        yield _caution(
            "masked-values-leak",
            "NaN at a hidden key comes through, as its weight of 0 times NaN is NaN: unused memory must be "
            "finite.",
        )


def _about_alignment(examined: Examined, recipe: Recipe) -> Iterator[Caution]:
    one_query = any(asked.probe.name == "causal, one query" and asked.answer for asked in examined.asked)
    if one_query and recipe.alignment == "upper_left":
        yield _caution(
            "causal-upper-left",
            "With more keys than queries the causal mask is aligned to the first key: behind a cache, one "
            "query would see key 0 alone.",
        )


def _about_calls(examined: Examined) -> Iterator[Caution]:
    changed = sorted({name for asked in examined.asked if asked.answer for name in asked.answer.changed})
    if changed:
        yield _caution("inputs-changed", f"It writes into what it is given: {', '.join(changed)}.")
    refused = [asked for asked in examined.asked if asked.refusal is not None and asked.answer is None]
    if refused:
        first = refused[0]
        yield _caution(
            "question-refused",
            f"It raises when it is asked with {', '.join(asked.probe.what for asked in refused)}: "
            f"{(first.refusal or '').splitlines()[0]}",
        )
