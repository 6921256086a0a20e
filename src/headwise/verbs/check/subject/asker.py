"""A callable asked in one way: from a probe with the axes of `Form` to an answer with them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from headwise.errors import ArgumentError, SubjectError
from headwise.verbs.check.asking import Answer, Form, Inputs, Role
from headwise.verbs.check.subject.answers import Shapes, in_own_axes, parts_of, shapes_of
from headwise.verbs.check.subject.caches import started
from headwise.verbs.check.subject.caller import Caller
from headwise.verbs.check.subject.masks import FullMask, options_to_try
from headwise.verbs.check.subject.meaning import INPUTS
from headwise.verbs.check.subject.way import Asked, Kept, Way, turned

AXES = {Form.HEADS: ("bhqd", "bqhd"), Form.WIDTH: ("bqd", "qbd"), Form.PROJECTED: ("bqd", "qbd")}


@dataclass(eq=False)
class Asker:
    """One way to ask.

    - in_widths: how wide query, key and value are in the forms other than HEADS
    - out_widths: how wide an output of these forms can be
    - neutral: a mask that hides nothing, for those who cannot do without one
    """

    caller: Caller
    way: Way
    in_widths: tuple[int, int, int]
    out_widths: tuple[int, ...]
    neutral: FullMask | None = None
    _place: int | None = field(default=None, init=False)

    def ask(self, inputs: Inputs, axes: str) -> Answer:
        """Ask once.

        Raises:
            ArgumentError: it does not take what the probe has, or not in these axes.
            SubjectError: it raised, or returned no tensor, another shape or integers.

        """
        self._check(inputs, axes)
        if self.neutral is not None and inputs.options.get(Role.MASK) is None:
            mask = self.neutral.of(inputs)
            inputs = replace(inputs, options={**inputs.options, Role.MASK: mask})
        if self.way.has_batch:
            return self._ask_at_once(inputs, axes)
        return _stacked([self._ask_at_once(row, axes) for row in _rows(inputs)])

    def _check(self, inputs: Inputs, axes: str) -> None:
        if axes not in AXES[self.way.form]:
            raise ArgumentError(f"axes={axes!r} are not of {self.way.form}; use {AXES[self.way.form]}")
        missing = set(inputs.options) - self.caller.parameters.roles
        if missing:
            raise ArgumentError(
                f"{self.caller.name} takes no {', '.join(sorted(role.value for role in missing))}"
            )

    def _ask_at_once(self, inputs: Inputs, axes: str) -> Answer:
        roles = self.caller.parameters.roles & INPUTS
        asked = Asked(
            inputs,
            self.way,
            {
                role: turned(getattr(inputs, role.value), axes, has_batch=self.way.has_batch)
                for role in (Role.QUERY, Role.KEY, Role.VALUE)
                if role in roles
            },
        )
        asked = started(asked, self.caller.target)
        shapes = shapes_of(asked, axes, self.out_widths)
        refused: list[SubjectError] = []
        for options in options_to_try(asked):
            try:
                return self._answer(asked.with_copies(asked.tensors, options), axes, shapes)
            except SubjectError as error:
                refused.append(error)
        raise refused[0]

    def _answer(self, asked: Asked, axes: str, shapes: Shapes) -> Answer:
        returned = self.caller.call(asked)
        parts = parts_of(returned, shapes, name=self.caller.name, place=self._place)
        # That of the first call, whose lengths are no widths.
        self._place = parts.place if self._place is None else self._place
        cache = returned.cache if parts.rest is None else parts.rest
        return Answer(
            in_own_axes(parts, asked, axes),
            parts.weights,
            parts.logsumexp,
            None if cache is None else Kept(cache, asked.seen + asked.kv_len),
            returned.changed,
            returned.warnings,
        )


def _rows(inputs: Inputs) -> list[Inputs]:
    """Return a probe for each row of text."""
    batch = inputs.query.shape[0]
    return [
        replace(
            inputs,
            query=inputs.query[row],
            key=inputs.key[row],
            value=inputs.value[row],
            options={role: _of_row(role, value, row, batch) for role, value in inputs.options.items()},
        )
        for row in range(batch)
    ]


def _of_row(role: Role, value: Any, row: int, batch: int) -> Any:
    if isinstance(value, Kept) and isinstance(value.value, _OfRows):
        return Kept(value.value[row], value.tokens)
    axes = {Role.MASK: 3, Role.BIAS: 3, Role.PADDING: 2}
    if not isinstance(value, Tensor) or value.dim() < axes.get(role, 5):
        return value
    return value[row if value.shape[0] == batch else 0]


class _OfRows(tuple[Any, ...]):
    """The caches of rows that were asked one by one."""

    __slots__ = ()


def _stacked(answers: list[Answer]) -> Answer:
    """Return the answers of rows as one."""
    first = answers[0]

    def together(name: str) -> Tensor | None:
        return None if getattr(first, name) is None else torch.stack([getattr(one, name) for one in answers])

    kept = None
    if first.cache is not None:
        kept = Kept(_OfRows(one.cache.value for one in answers), first.cache.tokens)
    return Answer(
        torch.stack([one.output for one in answers]),
        together("weights"),
        together("logsumexp"),
        kept,
        first.changed,
        first.warnings,
    )
