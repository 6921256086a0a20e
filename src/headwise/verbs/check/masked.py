"""What becomes of rows that see no key, and whether NaN at hidden keys comes through."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from headwise.verbs.check.asking import Inputs, Role
from headwise.verbs.check.comparing import Question
from headwise.verbs.check.examined import Examined
from headwise.verbs.check.interview import ask_probe
from headwise.verbs.check.probes import Probe
from headwise.verbs.check.recipe import Recipe

Empty = Literal["zero", "nan", "mean", "other"]
_EMPTIES: tuple[Empty, ...] = ("zero", "nan", "mean")


def empty_rows(examined: Examined, recipe: Recipe) -> Empty | None:
    """Return what a row that sees no key gets; None where no mask can bring one about."""
    counts = examined.make.counts
    hidden = torch.zeros(counts.batch, counts.long, counts.long, dtype=torch.bool)
    hidden[:, 1] = True
    padded = torch.zeros(counts.batch, counts.long, dtype=torch.bool)
    padded[-1] = True
    for options in (_hiding(examined, recipe, hidden[0]), _padding(examined, recipe, padded)):
        if options is None:
            continue
        probe = Probe("empty rows", "rows that see no key", examined.make.inputs(options))
        answer = ask_probe(examined.steadiness.ask, probe).answer
        if answer is None:
            continue
        question = Question(examined.subject, examined.readings, probe, answer.output)
        if question.exactly.weights(recipe).has_empty:
            fitting = (one for one in _EMPTIES if question.distance(replace(recipe, empty=one)).fits)
            return next(fitting, "other")
    return None


def lets_nan_through(examined: Examined, recipe: Recipe) -> bool | None:
    """Whether NaN in a key and a value that no row sees comes through; None where nothing can be hidden."""
    counts = examined.make.counts
    hidden = torch.zeros(counts.batch, counts.long, counts.long, dtype=torch.bool)
    hidden[..., -1] = True
    by_position = {Role.CAUSAL: True} if Role.CAUSAL in examined.subject.takes else None
    ways = (
        _hiding(examined, recipe, hidden[0]),
        _padding(examined, recipe, hidden[:, 0]),
        by_position if not recipe.causal else {},
    )
    for options in ways:
        if options is None:
            continue
        probe = Probe("hidden NaN", "NaN at a hidden key", _poisoned(examined.make.inputs(options)))
        answer = ask_probe(examined.steadiness.ask, probe).answer
        if answer is not None:
            # The last row may see the key, or be NaN of its own, where query and key are the same rows.
            return bool(answer.output[..., :-1, :].isnan().any())
    return None


def _poisoned(inputs: Inputs) -> Inputs:
    """Return the inputs with NaN in the last row of key and value, and of query where it is the same."""
    query, key, value = (_with_nan(rows) for rows in (inputs.query, inputs.key, inputs.value))
    return replace(inputs, query=query if inputs.query is inputs.key else inputs.query, key=key, value=value)


def _with_nan(rows: Tensor) -> Tensor:
    rows = rows.clone()
    rows[..., -1, :] = torch.nan
    return rows


def _hiding(examined: Examined, recipe: Recipe, hidden: Tensor) -> dict[Role, Any] | None:
    """Return the mask that hides what is True in `hidden`, as this subject understands masks."""
    if Role.MASK not in examined.subject.takes:
        return None
    if recipe.mask_means in ("attend", "ignore"):
        return {Role.MASK: hidden if recipe.mask_means == "ignore" else ~hidden}
    return {Role.MASK: torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)}


def _padding(examined: Examined, recipe: Recipe, padded: Tensor) -> dict[Role, Any] | None:
    if Role.PADDING not in examined.subject.takes:
        return None
    return {Role.PADDING: padded if recipe.padding_means == "ignore" else ~padded}
