"""The subject of `check`: a callable that can be asked, with its sizes, its roles and its weights."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import torch
from torch import nn

from headwise.errors import SubjectError
from headwise.verbs.check.asking import Answer, Form, Inputs, Projections, Role, Sizes
from headwise.verbs.check.subject.masks import in_every_rank
from headwise.verbs.check.subject.meaning import Constant, Meaning
from headwise.verbs.check.subject.trial import BATCH, SEQ_LEN, Tried, takes_mask, trial_inputs


class Examined:
    """A `Subject`: what `subject_of` returns."""

    def __init__(self, tried: Tried, *, axes: str | None, readings: tuple[Projections, ...] = ()) -> None:
        tried = _with_a_cache_only_if_it_returns_one(_with_padding_told_from_masks(tried))
        self._asker = tried.asker
        self._readings = readings
        self.axes = axes
        self.lengths_may_differ = tried.lengths_may_differ
        self.is_module = isinstance(tried.asker.caller.target, nn.Module)

    @property
    def name(self) -> str:
        """What messages call it."""
        return self._asker.caller.name

    @property
    def form(self) -> Form:
        """What it is given."""
        return self._asker.way.form

    @property
    def sizes(self) -> Sizes:
        """The sizes of its heads."""
        return self._asker.way.sizes

    @property
    def takes(self) -> frozenset[Role]:
        """What it can be given."""
        return self._asker.caller.parameters.roles

    def projections(self) -> tuple[Projections, ...]:
        """Return every way the weights can be read, likeliest first; empty unless PROJECTED."""
        return self._readings

    def answer(self, inputs: Inputs, *, axes: str) -> Answer:
        """Ask once, in an order of axes; the answer is turned back.

        Raises:
            ArgumentError: it does not take what the probe has, or not in these axes.
            SubjectError: it raised, or returned no tensor, another shape or integers.

        """
        return self._asker.ask(inputs, axes)


def _with_padding_told_from_masks(tried: Tried) -> Tried:
    """Return the way with `mask` for padding where it takes nothing but `[batch, kv_len]`."""
    roles = tried.asker.caller.parameters.roles
    if Role.MASK not in roles or Role.PADDING in roles:
        return tried
    full = torch.ones(SEQ_LEN, tried.kv_len, dtype=torch.bool)
    if takes_mask(tried, in_every_rank(full, BATCH).values()) or not takes_mask(tried, [full[:BATCH]]):
        return tried
    return _with_meaning(tried, Role.MASK, Role.PADDING)


def _with_a_cache_only_if_it_returns_one(tried: Tried) -> Tried:
    """Return the way without a cache where a call that asks for one gets none back."""
    if Role.CACHE not in tried.asker.caller.parameters.roles:
        return tried
    inputs = trial_inputs(tried.asker, kv_len=tried.kv_len)
    with suppress(SubjectError):
        if tried.asker.ask(replace(inputs, options={Role.CACHE: None}), tried.axes).cache is not None:
            return tried
    return _with_meaning(tried, Role.CACHE, Constant(None))


def _with_meaning(tried: Tried, was: Meaning, now: Meaning) -> Tried:
    parameters = tried.asker.caller.parameters
    meanings = {name: now if meaning is was else meaning for name, meaning in parameters.meanings.items()}
    caller = replace(tried.asker.caller, parameters=replace(parameters, meanings=meanings))
    return replace(tried, asker=replace(tried.asker, caller=caller))
