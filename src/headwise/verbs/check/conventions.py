"""What an attention does where attention may do one thing or another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch

from headwise.verbs.check.asking import Form, Role
from headwise.verbs.check.choices import is_uneven
from headwise.verbs.check.dropout import InTraining, in_training
from headwise.verbs.check.examined import Examined
from headwise.verbs.check.interview import Asked, ask_probe
from headwise.verbs.check.masked import Empty, empty_rows, lets_nan_through
from headwise.verbs.check.probes import HUGE, Probe
from headwise.verbs.check.recipe import Recipe
from headwise.verbs.check.result import Convention
from headwise.verbs.check.returned import logsumexp_words, weights_words

_NOT_ASKED = "not asked"
_MASKS = {
    "attend": "True means attend",
    "ignore": "True means ignore",
    "add": "added as 1, so that it hides nothing",
    "other": "neither True nor False hides",
}
_FLOATS = {
    "add": "added to the scores",
    "attend": "read as boolean: what is not 0 is seen",
    "ignore": "read as boolean: what is not 0 is hidden",
    "other": "neither added nor read as boolean",
}
_EMPTIES = {"zero": "0", "nan": "NaN", "mean": "the mean of all values", "other": "another number"}


class Seen(NamedTuple):
    """What further questions showed; None where they could not be asked.

    - empty: what a row that sees no key gets
    - leaks: whether NaN at a hidden key comes through
    - overflows: whether numbers overflow when it is asked in float16
    - training: what dropout does in training
    """

    empty: Empty | None
    leaks: bool | None
    overflows: bool | None
    training: InTraining


def see(examined: Examined, recipe: Recipe) -> Seen:
    """Ask what no recipe can tell."""
    plain = examined.questions[0].probe.inputs
    return Seen(
        empty_rows(examined, recipe),
        lets_nan_through(examined, recipe),
        _overflows(examined),
        in_training(examined.subject, examined.steadiness.ask, plain),
    )


def _overflows(examined: Examined) -> bool | None:
    inputs = examined.make.inputs(spread=HUGE)
    if inputs.query.dtype == torch.float16:
        return None
    query, key, value = (rows.to(torch.float16) for rows in (inputs.query, inputs.key, inputs.value))
    probe = Probe("float16", "float16", replace(inputs, query=query, key=key, value=value))
    answer = ask_probe(examined.steadiness.ask, probe).answer
    return None if answer is None else not bool(answer.output.isfinite().all())


def conventions_of(examined: Examined, recipe: Recipe, seen: Seen) -> tuple[Convention, ...]:
    """Return what was found, the general before the particular."""
    rows = [
        *_of_layout(examined, recipe),
        *_of_scores(examined, recipe),
        *_of_positions(examined, recipe),
        *_of_masks(examined, recipe),
        *_of_hidden(seen),
        *_of_dropout(examined, seen),
        *_of_what_returns(examined, recipe),
        *_of_sixteen_bits(seen),
    ]
    return tuple(Convention(name, value) for name, value in rows)


def _of_layout(examined: Examined, recipe: Recipe) -> Iterator[tuple[str, str]]:
    sizes, form = examined.subject.sizes, examined.subject.form
    letters = {"b": "batch", "h": "heads", "q": "tokens", "d": "width"}
    yield "axes", "[" + ", ".join(letters[letter] for letter in examined.axes) + "]"
    if form is not Form.HEADS:
        inner = "one after the other" if recipe.head_order == "head major" else "interleaved"
        yield "heads in a row", inner
    group = sizes.num_heads // sizes.num_kv_heads
    if group > 1:
        order = {
            "grouped": f"query head h reads KV head h // {group}",
            "tiled": f"query head h reads KV head h % {sizes.num_kv_heads}",
            "first only": "every query head reads the first",
        }
        yield "KV heads", order[recipe.kv_heads]
    if form is Form.PROJECTED:
        maps = examined.readings[recipe.reading]
        fused = "separate" if maps.fused is None else f"one, taken apart in {maps.fused}"
        yield "projections", fused.replace("in per head", "head by head")
        yield "output projection", "none" if maps.output is None else "one"


def _of_scores(examined: Examined, recipe: Recipe) -> Iterator[tuple[str, str]]:
    given = "the argument's, or " if Role.SCALE in examined.subject.takes else ""
    own = "head_dim ** -0.5" if recipe.scale is None else f"{recipe.scale:.6g}"
    yield "scale", f"{given}{own}" if recipe.scaling == "right" else "see the fault"
    cap = "none" if recipe.softcap is None else f"{recipe.softcap:g}"
    yield "softcap", "the argument's" if Role.SOFTCAP in examined.subject.takes else cap


def _of_positions(examined: Examined, recipe: Recipe) -> Iterator[tuple[str, str]]:
    if examined.subject.form is Form.PROJECTED:
        rope = recipe.rope
        yield (
            "rotary positions",
            "none" if rope is None else f"{rope.pairing}, base {rope.base:g}",
        )
    yield from _of_causality(examined, recipe)
    if Role.WINDOW in examined.subject.takes:
        yield "window", "the argument's, counting the row's own key"
    else:
        yield "window", "none" if recipe.window is None else f"{recipe.window} keys, the row's own among them"


def _of_causality(examined: Examined, recipe: Recipe) -> Iterator[tuple[str, str]]:
    probes = [question.probe for question in examined.questions]
    by_flag = Role.CAUSAL in examined.subject.takes
    if by_flag and not any(probe.name == "causal" for probe in probes):
        yield "causal", "refused where its flag is all there is"
        return
    always = "always" if recipe.causal else "no"
    if recipe.causal_behind_cache:
        always = "no, but behind a cache"
    yield "causal", "by its flag" if by_flag else always
    if by_flag or recipe.causal:
        uneven = any(probe.past is not None or is_uneven(probe, recipe) for probe in probes)
        yield "causal alignment", recipe.alignment if uneven else f"{_NOT_ASKED}: it takes equal lengths only"


def _of_masks(examined: Examined, recipe: Recipe) -> Iterator[tuple[str, str]]:
    answered = {asked.probe.name: asked for asked in examined.asked if asked.answer is not None}
    takes = examined.subject.takes
    if Role.MASK in takes:
        yield "boolean mask", _handed(answered.get("mask"), _MASKS[recipe.mask_means])
        yield "float mask", _handed(answered.get("float mask"), _FLOATS[recipe.float_mask])
    if Role.PADDING in takes:
        yield "padding mask", _handed(answered.get("padding"), _MASKS[recipe.padding_means])


def _handed(asked: Asked | None, means: str) -> str:
    return "refused" if asked is None else f"{means}; handed over as {asked.handed}"


def _of_hidden(seen: Seen) -> Iterator[tuple[str, str]]:
    nothing = f"{_NOT_ASKED}: no mask can hide all"
    yield "rows that see no key", nothing if seen.empty is None else _EMPTIES[seen.empty]
    if seen.leaks is not None:
        yield "NaN at hidden keys", "comes through" if seen.leaks else "does not come through"


def _of_dropout(examined: Examined, seen: Seen) -> Iterator[tuple[str, str]]:
    yield "dropout in evaluation", "at work" if examined.steadiness.drops else "off"
    if seen.training.drops is not None:
        yield "dropout in training", "at work" if seen.training.drops else "off"


def _of_what_returns(examined: Examined, recipe: Recipe) -> Iterator[tuple[str, str]]:
    yield "returned weights", weights_words(examined, recipe)
    yield "returned logsumexp", logsumexp_words(examined, recipe)


def _of_sixteen_bits(seen: Seen) -> Iterator[tuple[str, str]]:
    if seen.overflows is not None:
        yield "in float16", "overflows where query . key is beyond 65504" if seen.overflows else "no overflow"
