"""What comes back beside the output: weights and logsumexp, and what they are."""

from __future__ import annotations

from math import log

import torch
from torch import Tensor

from headwise.verbs.check.asking import Answer, Role
from headwise.verbs.check.comparing import Question
from headwise.verbs.check.examined import Examined
from headwise.verbs.check.interview import ask_probe
from headwise.verbs.check.probes import Probe
from headwise.verbs.check.recipe import Recipe

_CLOSE = 1e-3


def weights_words(examined: Examined, recipe: Recipe) -> str:
    """Say what the returned weights are."""
    answer, question = _asked_for_weights(examined)
    if answer is None or answer.weights is None:
        return "none"
    found = answer.weights.double()
    right = question.exactly.weights(recipe).weights
    shape = "[batch, heads, queries, keys]" if found.dim() == 4 else "[batch, queries, keys]"
    scored = question.exactly.scores(recipe)
    raw = scored.scores.masked_fill(scored.hidden, -torch.inf)
    for words, expected in (
        ("the weights of each head", right),
        ("the weights, their mean over the heads", right.mean(dim=1)),
        ("the weights, their sum over the heads", right.sum(dim=1)),
        ("the scores, before the softmax", raw),
        ("the products of query and key", question.exactly.products(recipe)),
    ):
        if _is_close(found, expected):
            return f"{words}, {shape}"
    return f"other numbers than the weights, {shape}"


def logsumexp_words(examined: Examined, recipe: Recipe) -> str:
    """Say what the returned logsumexp is."""
    answer, question = _asked_for_weights(examined)
    if answer is None or answer.logsumexp is None:
        return "none"
    found = answer.logsumexp.double()
    scored = question.exactly.scores(recipe)
    natural = torch.logsumexp(scored.scores.masked_fill(scored.hidden, -torch.inf), dim=-1)
    shape = "[batch, heads, queries]"
    for words, expected in (("natural", natural), ("base 2", natural / log(2.0))):
        if _is_close(found, expected):
            return f"{words}, {shape}"
    return f"another number, {shape}"


def _asked_for_weights(examined: Examined) -> tuple[Answer | None, Question]:
    first = examined.questions[0]
    if Role.NEED_WEIGHTS not in examined.subject.takes:
        return examined.asked[0].answer, first
    options = {**first.probe.inputs.options, Role.NEED_WEIGHTS: True}
    inputs = examined.make.inputs(options)
    probe = Probe("weights", "the weights too", inputs)
    answer = ask_probe(examined.steadiness.ask, probe).answer
    if answer is None:
        return None, first
    return answer, Question(examined.subject, examined.readings, probe, answer.output)


def _is_close(found: Tensor, expected: Tensor) -> bool:
    if found.shape != expected.shape:
        return False
    finite = expected.isfinite()
    size = float(expected[finite].abs().max()) if bool(finite.any()) else 0.0
    # What is hidden may stand as any low number.
    return bool(((found - expected)[finite].abs() <= _CLOSE * size).all())
