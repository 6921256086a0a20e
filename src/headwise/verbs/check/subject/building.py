"""A subject made from a class or a factory."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from inspect import Parameter, Signature
from typing import Any

from headwise.errors import ArgumentError, HeadwiseError
from headwise.verbs.check.asking import Role, Sizes
from headwise.verbs.check.expected import Expected
from headwise.verbs.check.subject.examined import Examined
from headwise.verbs.check.subject.hints import Hint, Hints
from headwise.verbs.check.subject.meaning import INPUTS, Part
from headwise.verbs.check.subject.of_callable import defined_at, examined_callable, name_of
from headwise.verbs.check.subject.raised import place_of, told
from headwise.verbs.check.subject.random_state import RandomState
from headwise.verbs.check.subject.settings import (
    CONFIGS,
    Values,
    arguments_to_make,
    can_be_given,
    meaning_of,
)
from headwise.verbs.check.subject.signature import has_kind, is_required, signature_of
from headwise.verbs.check.subject.sizes_to_try import sizes_to_try
from headwise.verbs.check.subject.words import plain


def is_to_be_built(target: Any) -> bool:
    """Return whether a target makes the attention: a class, or a function that is given no query."""
    if inspect.isclass(target):
        return True
    if not inspect.isroutine(target):
        return False
    signature = signature_of(target)
    takes_rows = any(meaning_of(name) in INPUTS for name in signature.parameters)
    return not (takes_rows or has_kind(signature, Parameter.VAR_POSITIONAL) or _unknown(signature, {}))


def examined_when_built(
    target: Any, *, expected: Expected, arguments: Mapping[str, Any], weights: Mapping[str, str] | None
) -> Examined:
    """Return the subject that a class or a factory makes.

    Raises:
        ArgumentError: it cannot be made, or what it makes cannot be understood.
        SubjectError: what it makes answers in no way in which it can be asked.

    """
    name, signature = name_of(target), signature_of(target)
    own = {given: value for given, value in arguments.items() if given in signature.parameters}
    rest = {given: value for given, value in arguments.items() if given not in own}
    unknown = _unknown(signature, own)
    if unknown:
        raise ArgumentError(
            f"{name} is made with {' and '.join(unknown)}, for which check knows no value; pass an instance, "
            f"or a factory without arguments, such as def make(): return {name}(...); or give the value, "
            f"arguments={{{unknown[0]!r}: ...}}"
        )
    tells_heads = _tells_heads(signature) or _is_one_head(signature)
    refused: HeadwiseError | None = None
    for sizes in _sizes(signature, expected):
        heads = Hint(sizes.num_heads, f"num_heads={sizes.num_heads}, with which it was made")
        try:
            return examined_callable(
                _made(target, signature, Values(sizes, expected), own),
                expected=expected,
                arguments=rest,
                weights=weights,
                told=Hints(num_heads=heads) if tells_heads else Hints(),
                is_new=inspect.isclass(target),
            )
        except HeadwiseError as error:
            refused = error
    if refused is None:
        raise ArgumentError(f"{name}: the sizes that are given do not fit together; leave one of them out")
    raise refused


def _made(target: Any, signature: Signature, values: Values, own: Mapping[str, Any]) -> Any:
    """Make it, with the same random numbers each time.

    Raises:
        ArgumentError: it raised, or made nothing that can be called.

    """
    name, arguments = name_of(target), dict[str, Any]()
    with RandomState(seed=0)():
        try:
            arguments = arguments_to_make(target, signature, values, own)
            made = target(**arguments)
        except (Exception, SystemExit) as error:
            place = place_of(error, (defined_at(target) or (None, 0))[0])
            raise ArgumentError(
                f"{name}({told([], arguments)}) raised {type(error).__name__}: {error}"
                f"{f' at {place}' if place else ''}; pass an instance, or a factory without arguments, such "
                f"as def make(): return {name}(...)"
            ) from error
        if not callable(made) or inspect.isclass(made):
            raise ArgumentError(f"{name} made a {type(made).__name__}, which is no attention to be called")
    return made


def _unknown(signature: Signature, own: Mapping[str, Any]) -> list[str]:
    """Return the parameters that must be given, and for which nothing is known."""
    anything = Values(Sizes(1, 1, 1, 1, 1), Expected(causal=True, window=1, softcap=1.0, scale=1.0))
    return [
        parameter.name
        for parameter in signature.parameters.values()
        if is_required(parameter) and parameter.name not in own and not can_be_given(parameter, anything)
    ]


def _sizes(signature: Signature, expected: Expected) -> Iterator[Sizes]:
    """Return the sizes that its parameters leave open, the most telling first."""
    hints = Hints(
        **{
            name: Hint(value, f"{name}={value}")
            for name in Hints._fields
            if (value := getattr(expected, name)) is not None
        }
    )
    has_config = _has_config(signature)
    if hints.num_heads is None and _is_one_head(signature):
        hints = hints._replace(num_heads=Hint(1, "one head"))
    grouped = has_config or _takes(signature, Role.NUM_KV_HEADS) or _takes(signature, Part.GROUP_SIZE)
    own_value_width = _takes(signature, Part.VALUE_HEAD_DIM)
    free_width = has_config or _takes(signature, Part.HEAD_DIM)
    for sizes in sizes_to_try(hints, free_width=free_width):
        is_open = grouped or sizes.num_kv_heads == sizes.num_heads
        if is_open and (own_value_width or sizes.value_head_dim == sizes.head_dim):
            yield sizes


def _takes(signature: Signature, meaning: Role | Part) -> bool:
    return any(meaning_of(name) is meaning for name in signature.parameters)


def _tells_heads(signature: Signature) -> bool:
    """Return whether the number of heads is one of the things that it is made with."""
    return _has_config(signature) or _takes(signature, Role.NUM_HEADS)


def _is_one_head(signature: Signature) -> bool:
    """Return whether it is made with the width of a head and not with their number."""
    return _takes(signature, Part.HEAD_DIM) and not _tells_heads(signature)


def _has_config(signature: Signature) -> bool:
    return any(plain(name) in CONFIGS for name in signature.parameters)
