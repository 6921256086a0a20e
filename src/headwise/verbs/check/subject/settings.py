"""The arguments of a class that makes attention: by the names of its parameters, or in a config object."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator, Mapping
from inspect import Parameter, Signature
from typing import Any, NamedTuple

from headwise.verbs.check.asking import Role, Sizes
from headwise.verbs.check.expected import Expected
from headwise.verbs.check.subject.handing import CAPACITY
from headwise.verbs.check.subject.meaning import MEANING_OF_NAME, Part
from headwise.verbs.check.subject.signature import is_required, signature_of
from headwise.verbs.check.subject.words import plain

CONFIGS = frozenset({"config", "cfg", "args", "hparams", "settings", "params"})
# Enough that what still drops in evaluation shows.
_DROPOUT = 0.25
# What has no meaning for a call, and has to be something.
_PLAIN = {"bias": True, "qkvbias": True, "layeridx": 0, "layerid": 0, "device": None, "dtype": None}
# Given even where there is a default, since sizes that tell more than it does can be chosen.
_ALWAYS = frozenset(
    {Role.NUM_HEADS, Role.NUM_KV_HEADS, Role.DROPOUT}
    | {Part.D_MODEL, Part.HEAD_DIM, Part.VALUE_HEAD_DIM, Part.GROUP_SIZE, Part.CAPACITY}
)


class Values(NamedTuple):
    """What a class is made with: sizes, and what the caller declares."""

    sizes: Sizes
    expected: Expected

    def by_meaning(self) -> dict[Role | Part, Any]:
        """Return every value that is known."""
        sizes, expected = self.sizes, self.expected
        declared = {
            Role.CAUSAL: None if expected.causal is None else bool(expected.causal),
            Role.WINDOW: expected.window,
            Role.SOFTCAP: expected.softcap,
            Role.SCALE: expected.scale,
        }
        return {
            Role.NUM_HEADS: sizes.num_heads,
            Role.NUM_KV_HEADS: sizes.num_kv_heads,
            Role.DROPOUT: _DROPOUT,
            Part.D_MODEL: sizes.d_model,
            Part.HEAD_DIM: sizes.head_dim,
            Part.VALUE_HEAD_DIM: sizes.value_head_dim,
            Part.WIDTH: sizes.num_heads * sizes.head_dim,
            Part.GROUP_SIZE: sizes.num_heads // sizes.num_kv_heads,
            Part.CAPACITY: CAPACITY,
            **{role: value for role, value in declared.items() if value is not None},
        }

    def given(self, name: str) -> Any:
        """Return what a parameter or a setting of that name is given.

        Raises:
            KeyError: nothing is known for it.

        """
        meaning = meaning_of(name)
        return _PLAIN[plain(name)] if meaning not in self.by_meaning() else self.by_meaning()[meaning]


class Settings:
    """A config that has what is known under whatever name it is asked for, as attribute or by key."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values.given(name)
        except KeyError:
            raise AttributeError(f"check knows no value for the setting {name!r}") from None

    def __getitem__(self, name: str) -> Any:
        return self._values.given(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a setting, or what is wanted in its place."""
        return getattr(self, name, default)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and hasattr(self, name)


def meaning_of(name: str) -> Role | Part | None:
    """Return what a parameter of a class means."""
    return Role.NUM_HEADS if name == "h" else MEANING_OF_NAME.get(plain(name))


def can_be_given(parameter: Parameter, values: Values) -> bool:
    """Return whether something is known for a parameter."""
    is_known = meaning_of(parameter.name) in values.by_meaning() or plain(parameter.name) in _PLAIN
    return is_known or plain(parameter.name) in CONFIGS


def arguments_to_make(
    target: Any, signature: Signature, values: Values, own: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments, by name, that a class or a factory is called with.

    Args:
        target: the class or factory.
        signature: of it.
        values: what is known.
        own: what the user gives, by name.

    """
    return dict(_arguments(target, signature, values, own))


def _arguments(
    target: Any, signature: Signature, values: Values, own: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    known = values.by_meaning()
    for parameter in signature.parameters.values():
        name, meaning = parameter.name, meaning_of(parameter.name)
        is_flag = isinstance(parameter.default, bool)
        if name in own:
            yield name, own[name]
        elif plain(name) in CONFIGS and is_required(parameter):
            yield name, _config(target, name, values)
        elif is_required(parameter):
            yield name, values.given(name)
        elif meaning in known and (is_flag == (meaning is Role.CAUSAL)) and _is_wanted(meaning, known):
            yield name, known[meaning]


def _is_wanted(meaning: Role | Part | None, known: Mapping[Role | Part, Any]) -> bool:
    return meaning in _ALWAYS or meaning in {Role.CAUSAL, Role.WINDOW, Role.SOFTCAP, Role.SCALE}


def _config(target: Any, name: str, values: Values) -> Any:
    """Return a config of the class that the parameter is annotated with, or one that answers to any name."""
    made = target.__init__ if inspect.isclass(target) else target
    try:
        kind = typing.get_type_hints(made).get(name)
    except (NameError, TypeError, AttributeError):
        kind = None
    if not inspect.isclass(kind) or kind in {dict, object}:
        return Settings(values)
    return kind(**arguments_to_make(kind, signature_of(kind), values, {}))
