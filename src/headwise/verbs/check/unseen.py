"""Faults that no recipe computes: they show by asking twice, in training, or in the weights themselves."""

from __future__ import annotations

import torch

from headwise.verbs.check.asking import Projection, Projections, Sizes
from headwise.verbs.check.conventions import Seen
from headwise.verbs.check.dropout import is_right_on_average
from headwise.verbs.check.examined import Examined
from headwise.verbs.check.faults import FAULTS
from headwise.verbs.check.recipe import Recipe
from headwise.verbs.check.result import Fault

_BY_NAME = {fault.name: fault for fault in FAULTS}


def unseen_faults(examined: Examined, recipe: Recipe, seen: Seen) -> tuple[Fault, ...]:
    """Return what else is wrong, in the order of the catalogue.

    Args:
        examined: the subject.
        recipe: the right one.
        seen: what further questions showed.

    """
    names = []
    if recipe.shared_head is None and _heads_are_alike(examined, recipe):
        names.append("heads-share-weights")
    if examined.steadiness.drops:
        names.append("dropout-in-eval")
    elif not examined.steadiness.is_steady:
        names.append("dropout-in-eval" if _is_right_on_average(examined, recipe) else "unrepeatable")
    if seen.training.weights_dropped and examined.steadiness.is_steady:
        names.append("weights-after-dropout")
    return tuple(_BY_NAME[name] for name in names)


def _is_right_on_average(examined: Examined, recipe: Recipe) -> bool:
    first = examined.questions[0]
    right = first.exactly.answer(recipe).output
    return is_right_on_average(examined.steadiness.ask, first.probe.inputs, right)


def _heads_are_alike(examined: Examined, recipe: Recipe) -> bool:
    """Whether the heads hold the same numbers: no head can do what another does not."""
    if not examined.readings:
        return False
    maps, sizes = examined.readings[recipe.reading], examined.subject.sizes
    return sizes.num_heads > 1 and _all_alike(maps, sizes)


def _all_alike(maps: Projections, sizes: Sizes) -> bool:
    return all(
        _is_repeated(projection, heads)
        for projection, heads in (
            (maps.query, sizes.num_heads),
            (maps.key, sizes.num_kv_heads),
            (maps.value, sizes.num_kv_heads),
        )
    )


def _is_repeated(projection: Projection, heads: int) -> bool:
    # [heads * width, d_model] -> [heads, width, d_model]
    of_heads = projection.weight.unflatten(0, (heads, -1))
    return torch.equal(of_heads, of_heads[:1].expand_as(of_heads)) and bool(of_heads.any())
