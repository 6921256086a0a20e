"""Keys that may be left out: whether they are what the attention attends to, or only in its signature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from headwise.errors import SubjectError
from headwise.verbs.check.asking import Role
from headwise.verbs.check.subject.handing import Parameters
from headwise.verbs.check.subject.signature import is_required
from headwise.verbs.check.subject.trial import Tried, trial_inputs

_KEYS = frozenset({Role.KEY, Role.VALUE})


def with_keys_or_without(parameters: Parameters, tried_with: Callable[[Parameters], Tried]) -> Tried:
    """Return the way in which a callable answers, without keys where they can be left out and do nothing.

    Args:
        parameters: of the callable.
        tried_with: makes the trial calls with some of them.

    Raises:
        SubjectError: it answers in no way.

    """
    without = _without_keys(parameters)
    if without is None:
        return tried_with(parameters)
    try:
        tried = tried_with(parameters)
    except SubjectError:
        return tried_with(without)
    return tried if _depends_on_keys(tried) else tried_with(without)


def _without_keys(parameters: Parameters) -> Parameters | None:
    """Return the parameters without key and value; None where they must be given, or are not there."""
    keys = [name for name, meaning in parameters.meanings.items() if meaning in _KEYS]
    known = [
        parameters.signature.parameters[name] for name in keys if name in parameters.signature.parameters
    ]
    if not keys or any(is_required(parameter) for parameter in known):
        return None
    kept = {name: meaning for name, meaning in parameters.meanings.items() if name not in keys}
    return replace(parameters, meanings=kept)


def _depends_on_keys(tried: Tried) -> bool:
    one, other = (trial_inputs(tried.asker, kv_len=tried.kv_len, seed=seed) for seed in (0, 1))
    answers = [
        tried.asker.ask(replace(one, key=each.key, value=each.value), tried.axes).output
        for each in (one, other)
    ]
    return not torch.equal(*answers)
