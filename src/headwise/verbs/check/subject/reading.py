"""What each parameter of a callable means, by its name, its default and its place."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Parameter, Signature
from typing import Any

import torch

from headwise.counts import either
from headwise.errors import ArgumentError
from headwise.verbs.check.asking import Role
from headwise.verbs.check.subject.meaning import (
    INPUTS,
    MEANING_OF_NAME,
    MEANING_OF_WORD,
    Constant,
    Meaning,
    Part,
)
from headwise.verbs.check.subject.signature import has_kind, is_required
from headwise.verbs.check.subject.weight_names import ARGUMENT_WORDS, says_weight, weight_role
from headwise.verbs.check.subject.words import plain

_FLAGS = frozenset({Role.CAUSAL, Role.NEED_WEIGHTS, Part.GROUPED, Part.TRAINING, Part.USE_CACHE})
_WORDS = [*MEANING_OF_WORD, *ARGUMENT_WORDS]
_IN_ORDER = (Role.QUERY, Role.KEY, Role.VALUE)


def meanings_of(
    signature: Signature, *, name: str, arguments: Mapping[str, Any] | None = None
) -> dict[str, Meaning]:
    """Return what the parameters mean, in their order; those left at their default are left out.

    Args:
        signature: as Python has it.
        name: of what it belongs to, for messages.
        arguments: what the user says: a parameter's name to the word of a meaning, or to a value.

    Raises:
        ArgumentError: a parameter that must be given cannot be understood, `arguments` names one that is not
            there, or two have the same meaning.

    """
    told = _told(signature, name, arguments or {})
    found: dict[str, Meaning] = {}
    taken = set(told.values()) if told else set()
    for parameter in signature.parameters.values():
        meaning = told.get(parameter.name, _by_name(parameter, is_first=not found))
        if meaning is not None and (parameter.name in told or meaning not in taken):
            found[parameter.name] = meaning
            taken.add(meaning)
    found |= {given: meaning for given, meaning in told.items() if given not in found}
    unknown = [
        parameter.name
        for parameter in signature.parameters.values()
        if is_required(parameter) and parameter.name not in found
    ]
    if unknown and not INPUTS & taken and len(unknown) in {1, 3}:
        # def attend(a, b, c): by their place.
        return dict(zip(unknown, _IN_ORDER, strict=False)) | found
    if unknown:
        raise ArgumentError(_not_understood(name, unknown))
    return found


def open_positions(signature: Signature, meanings: Mapping[str, Meaning]) -> bool:
    """Return whether query, key and value go to `*args`, since no parameter has their name."""
    return has_kind(signature, Parameter.VAR_POSITIONAL) and not INPUTS & set(meanings.values())


def meaning_of_word(word: str) -> Meaning | None:
    """Return what a word of `arguments` means, or None."""
    if word in MEANING_OF_WORD:
        return MEANING_OF_WORD[word]
    return weight_role(word) if word in ARGUMENT_WORDS else None


def _told(signature: Signature, name: str, arguments: Mapping[str, Any]) -> dict[str, Meaning]:
    told: dict[str, Meaning] = {}
    takes_any = has_kind(signature, Parameter.VAR_KEYWORD)
    for given, word in arguments.items():
        if given not in signature.parameters and not takes_any:
            raise ArgumentError(
                f"arguments names {given!r}, which {name} does not take; its parameters are "
                f"{', '.join(signature.parameters) or 'none'}"
            )
        meaning = meaning_of_word(word) if isinstance(word, str) else Constant(word)
        if meaning is None:
            raise ArgumentError(
                f"arguments={{{given!r}: {word!r}}}: {word!r} is no known meaning; use "
                f"{either(_WORDS)}, or a value that is no string, to be handed over "
                "as it is"
            )
        if meaning in told.values() and not isinstance(meaning, Constant):
            other = next(one for one, known in told.items() if known == meaning)
            raise ArgumentError(f"arguments gives {other!r} and {given!r} the same meaning, {word!r}")
        told[given] = meaning
    return told


def _by_name(parameter: Parameter, *, is_first: bool) -> Meaning | None:
    if parameter.kind in {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}:
        return None
    is_flag = isinstance(parameter.default, bool) or parameter.annotation in {bool, "bool"}
    if plain(parameter.name) == "h" and (is_first or parameter.annotation in {torch.Tensor, "Tensor"}):
        return Role.QUERY
    if plain(parameter.name) == "h":
        return Role.NUM_HEADS
    meaning = MEANING_OF_NAME.get(plain(parameter.name))
    if meaning is Role.MASK and is_flag:
        return Role.CAUSAL
    if meaning is not None:
        # `scale=True` and `bias=True` say whether, not what.
        return meaning if not is_flag or meaning in _FLAGS else None
    return weight_role(parameter.name) if says_weight(parameter.name) else None


def _not_understood(name: str, unknown: list[str]) -> str:
    first, word = unknown[0], '"mask"'
    return (
        f"{name} must be given {' and '.join(unknown)}, which check does not understand. Say what each "
        f"means, arguments={{{first!r}: {word}}}, with one of {', '.join(_WORDS)}; or give it a value "
        f"that is no string, arguments={{{first!r}: 0}}"
    )
