"""From a callable that is there - a module, a function, an object - to a `Subject`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from torch import nn

from headwise.errors import ArgumentError, SubjectError
from headwise.verbs.check.asking import Form, Projections, Role, Sizes
from headwise.verbs.check.expected import Expected
from headwise.verbs.check.subject.around import check_nothing_is_around
from headwise.verbs.check.subject.asker import AXES, Asker
from headwise.verbs.check.subject.caller import Caller
from headwise.verbs.check.subject.drawn_weights import drawn_weights, parts_of_weights
from headwise.verbs.check.subject.examined import Examined
from headwise.verbs.check.subject.handing import Parameters
from headwise.verbs.check.subject.held_maps import Order
from headwise.verbs.check.subject.hints import Hint, Hints, hints_of
from headwise.verbs.check.subject.lazy import make_weights
from headwise.verbs.check.subject.optional_keys import with_keys_or_without
from headwise.verbs.check.subject.projecting import ReadWeights, read_parts, weights_held
from headwise.verbs.check.subject.random_state import RandomState
from headwise.verbs.check.subject.reading import meanings_of, open_positions
from headwise.verbs.check.subject.redrawing import redraw_constants
from headwise.verbs.check.subject.signature import signature_of
from headwise.verbs.check.subject.sizes_to_try import ONE_HEAD, sizes_to_try
from headwise.verbs.check.subject.trial import Tried, first_that_answers
from headwise.verbs.check.subject.way import Way
from headwise.verbs.check.subject.weight_names import WeightRole

_ORDERS: tuple[Order, ...] = ("in_out", "out_in")


def examined_callable(
    target: Callable[..., Any],
    *,
    expected: Expected,
    arguments: Mapping[str, Any] | None,
    weights: Mapping[str, str] | None,
    told: Hints | None = None,
    is_new: bool = False,
) -> Examined:
    """Return the subject that a callable is.

    Args:
        target: a module, a function, or an object that can be called.
        expected: what the caller says of it.
        arguments: what its parameters mean where their names do not say it.
        weights: where its projections are, where their names do not say it.
        told: the sizes that it was made with, where it was made here.
        is_new: whether nobody else holds it, so that its weights can be drawn.

    Raises:
        ArgumentError: its parameters, its sizes or its weights cannot be understood.
        SubjectError: it answers in no way in which it can be asked.
        UnsupportedError: it does more than attention.

    """
    name = name_of(target)
    signature = signature_of(target)
    meanings = meanings_of(signature, name=name, arguments=arguments)
    parameters = Parameters(signature, meanings, open_positions(signature, meanings), expected.rope)
    if Role.QUERY not in parameters.roles:
        raise ArgumentError(
            f"{name} has no parameter that check takes for the query or the token rows; say which it is, "
            'arguments={"its_name": "query"}'
        )
    caller = Caller(name, target, parameters, defined_at(target))
    hints = hints_of(target, expected, told or Hints())
    axes = expected.axes or _stated_axes(target)
    roles = [meaning for meaning in meanings.values() if isinstance(meaning, WeightRole)]
    if roles:
        return _given_weights(caller, roles, hints, axes)
    make_weights(caller, hints)
    if is_new:
        with RandomState(seed=0)():
            redraw_constants(target)
    held = weights_held(target, hints, name=name, told=weights) if _can_hold(target) else None
    if held is not None:
        return _holding_weights(caller, held, axes)
    forms = _forms(parameters, hints, axes)
    if not forms:
        raise ArgumentError(f"{name} does not tell how many heads it splits rows into; pass num_heads=")

    def askers(caller: Caller) -> Iterator[Asker]:
        for way in _ways(forms, hints):
            yield Asker(caller, way, _in_widths(way.sizes), (_joined(way.sizes),))

    try:
        return Examined(_tried(caller, askers, axes), axes=axes)
    except SubjectError as error:
        if Form.WIDTH in forms or f"{name} raised" not in str(error):
            raise
        raise SubjectError(
            f"{error}. It was handed heads, [batch, num_heads, seq_len, head_dim]; if it takes rows, "
            "[batch, seq_len, width], and splits them itself, pass num_heads="
        ) from error


def name_of(target: Any) -> str:
    """Return what messages call a target."""
    named = target.func if isinstance(target, partial) else target
    return str(getattr(named, "__qualname__", type(named).__name__)).rsplit("<locals>.", maxsplit=1)[-1]


def defined_at(target: Any) -> tuple[str, int] | None:
    """Return the file and the line where a target is written, None where that is not known."""
    named = target.func if isinstance(target, partial) else target
    called = type(named).forward if isinstance(named, nn.Module) else inspect.unwrap(named)
    code = getattr(called, "__code__", None) or getattr(type(target).__call__, "__code__", None)
    return None if code is None else (code.co_filename, code.co_firstlineno)


def _tried(caller: Caller, askers: Callable[[Caller], Iterator[Asker]], axes: str | None) -> Tried:
    """Return the way in which the caller answers, of those that `askers` makes for it."""
    return with_keys_or_without(
        caller.parameters,
        lambda parameters: first_that_answers(
            lambda: askers(replace(caller, parameters=parameters)), axes=axes
        ),
    )


def _can_hold(target: Any) -> bool:
    return isinstance(target, nn.Module) or not inspect.isroutine(target)


def _stated_axes(target: Any) -> str | None:
    """Return the order of axes that a `batch_first` attribute states."""
    batch_first = getattr(target, "batch_first", None)
    return {True: "bqd", False: "qbd"}.get(batch_first) if isinstance(batch_first, bool) else None


def _forms(parameters: Parameters, hints: Hints, axes: str | None) -> list[Form]:
    """Return the forms to try, the likeliest first: who is told the number of heads splits them itself."""
    is_told = Role.NUM_HEADS in parameters.roles
    forms = [Form.WIDTH, Form.HEADS] if is_told else [Form.HEADS, Form.WIDTH]
    return [
        form
        for form in forms
        if (axes is None or axes in AXES[form])
        and (form is Form.HEADS or is_told or hints.num_heads is not None)
    ]


def _ways(forms: Sequence[Form], hints: Hints) -> Iterator[Way]:
    for as_arrays in (False, True):
        for form, has_batch in product(forms, (True, False)):
            for sizes in sizes_to_try(hints, free_width=False):
                yield Way(form, sizes, has_batch, as_arrays)
        if Form.WIDTH not in forms:
            yield from (Way(Form.WIDTH, sizes, has_batch=False, as_arrays=as_arrays) for sizes in ONE_HEAD)


def _holding_weights(caller: Caller, held: ReadWeights, axes: str | None) -> Examined:
    reading = held.readings[0]
    in_widths = tuple(one.weight.shape[1] for one in (reading.query, reading.key, reading.value))
    widths = [_joined(held.sizes), held.sizes.d_model]
    if reading.output is not None:
        widths.insert(0, reading.output.weight.shape[0])

    def askers(caller: Caller) -> Iterator[Asker]:
        for as_arrays, has_batch in product((False, True), (True, False)):
            way = Way(Form.PROJECTED, held.sizes, has_batch, as_arrays)
            yield Asker(caller, way, (in_widths[0], in_widths[1], in_widths[2]), tuple(dict.fromkeys(widths)))

    tried = _tried(caller, askers, axes)
    check_nothing_is_around(tried, held)
    return Examined(tried, axes=axes, readings=held.readings)


def _given_weights(caller: Caller, roles: Sequence[WeightRole], hints: Hints, axes: str | None) -> Examined:
    letters = [role.letters for role in roles if not role.is_bias]
    if sorted("".join(each for each in letters if each != "o")) != ["k", "q", "v"]:
        raise ArgumentError(
            f"{caller.name} takes weights, {', '.join(role.words for role in roles)}; they must be "
            "of query, key and value, once each. Say what each means: "
            'arguments={"its_name": "query_weight"}, "qkv_weight" for all three'
        )

    def askers(caller: Caller) -> Iterator[Asker]:
        for as_arrays, has_batch in product((False, True), (True, False)):
            for sizes, by_head, order in product(
                sizes_to_try(hints, free_width=True), (False, True), _ORDERS
            ):
                drawn = drawn_weights(roles, sizes, order=order, by_head=by_head)
                width = sizes.d_model if "o" in letters else _joined(sizes)
                way = Way(Form.PROJECTED, sizes, has_batch, as_arrays, drawn)
                yield Asker(caller, way, (sizes.d_model,) * 3, (width,))

    tried = _tried(caller, askers, axes)
    return Examined(tried, axes=axes, readings=_readings_of_given(caller, tried.asker.way))


def _readings_of_given(caller: Caller, way: Way) -> tuple[Projections, ...]:
    """Return how the weights that were handed over can be read: square ones fit with both orders of axes."""
    names = {
        meaning: name
        for name, meaning in caller.parameters.meanings.items()
        if isinstance(meaning, WeightRole)
    }
    known = Hints(*(Hint(size, name) for name, size in _sizes_by_hint(way.sizes)))
    parts = parts_of_weights(way.weights, names)
    return read_parts(parts, known, name=caller.name, orders=_ORDERS).readings


def _sizes_by_hint(sizes: Sizes) -> list[tuple[str, int]]:
    return [(f"{name}={getattr(sizes, name)}", getattr(sizes, name)) for name in Hints._fields]


def _in_widths(sizes: Sizes) -> tuple[int, int, int]:
    key, value = sizes.num_kv_heads * sizes.head_dim, sizes.num_kv_heads * sizes.value_head_dim
    return sizes.num_heads * sizes.head_dim, key, value


def _joined(sizes: Sizes) -> int:
    return sizes.num_heads * sizes.value_head_dim
