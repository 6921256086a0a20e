"""Whether the same question gets the same answer, and what dropout has to do with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from headwise.errors import SubjectError
from headwise.verbs.check.asking import Answer, Inputs, Role, Subject
from headwise.verbs.check.interview import Ask

_TIMES = 256
_STANDARD_ERRORS = 6.0
_CHANCE = 0.5
_SAME = 1e-4  # what is dropped differs by more than sums in another order
_PLACE_OF_CHANCE = 4  # of dropout_p among the arguments of scaled_dot_product_attention
_DROPS: set[Callable[..., Any]] = {
    functional.dropout,
    functional.alpha_dropout,
    functional.dropout1d,
    functional.dropout2d,
    functional.dropout3d,
    torch.dropout,
}


class WithoutDropout(TorchFunctionMode):
    """Lets torch's dropout drop nothing, whoever calls it."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call `func`, or hand back what it was to drop from."""
        kwargs = dict(kwargs or {})
        if func in _DROPS:
            return args[0] if args else kwargs["input"]
        if func is functional.scaled_dot_product_attention:
            if len(args) > _PLACE_OF_CHANCE:
                args = (*args[:_PLACE_OF_CHANCE], 0.0, *args[_PLACE_OF_CHANCE + 1 :])
            else:
                kwargs["dropout_p"] = 0.0
        return func(*args, **kwargs)


class Steadiness(NamedTuple):
    """How to ask so that the same question gets the same answer.

    - ask: the way to ask
    - drops: whether torch's dropout is at work in evaluation; `ask` is without it
    - is_steady: whether the answers are the same now
    """

    ask: Ask
    drops: bool
    is_steady: bool


def steadiness(ask: Ask, inputs: Inputs) -> Steadiness:
    """Return how to ask: without torch's dropout if that makes the answers the same.

    Raises:
        SubjectError: the subject cannot answer.

    """
    if _repeats(ask, inputs):
        return Steadiness(ask, drops=False, is_steady=True)

    def without(given: Inputs) -> Answer:
        with WithoutDropout():
            return ask(given)

    if _repeats(without, inputs):
        return Steadiness(without, drops=True, is_steady=True)
    return Steadiness(ask, drops=False, is_steady=False)


def is_right_on_average(ask: Ask, inputs: Inputs, right: Tensor) -> bool:
    """Whether the mean of many answers is the right one, as that of dropout is."""
    answers = torch.stack([ask(inputs).output.double() for _ in range(_TIMES)])
    error = (answers.mean(dim=0) - right).abs()
    allowed = _STANDARD_ERRORS * answers.std(dim=0) / _TIMES**0.5 + 1e-3 * right.abs().max()
    return bool((error <= allowed).all())


class InTraining(NamedTuple):
    """What dropout does in training: whether answers vary, and whether returned weights do.

    None where it was not asked, for there is no such mode or no weights are returned.
    """

    drops: bool | None
    weights_dropped: bool | None


def in_training(subject: Subject, ask: Ask, inputs: Inputs) -> InTraining:
    """Return what dropout does in training, or with a chance of 0.5 where that is an argument."""
    if not subject.is_module and Role.DROPOUT not in subject.takes:
        return InTraining(None, None)
    options = dict(inputs.options)
    if Role.DROPOUT in subject.takes:
        options[Role.DROPOUT] = _CHANCE
    given = Inputs(inputs.query, inputs.key, inputs.value, options, training=True)
    try:
        resting, one, other = ask(inputs), ask(given), ask(given)
    except SubjectError:
        return InTraining(None, None)
    drops = not _same(one.output, other.output)
    if resting.weights is None or one.weights is None or other.weights is None:
        return InTraining(drops, None)
    return InTraining(drops, not _same(one.weights, other.weights))


def _repeats(ask: Ask, inputs: Inputs) -> bool:
    return _same(ask(inputs).output, ask(inputs).output)


def _same(one: Tensor, other: Tensor) -> bool:
    largest = float(one.nan_to_num(0.0, posinf=0.0, neginf=0.0).abs().max())
    return torch.allclose(one, other, rtol=_SAME, atol=_SAME * largest, equal_nan=True)
