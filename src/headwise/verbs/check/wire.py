"""A result as JSON between two processes, and back; what comes back is held against the types it must have.

Not a pickle: what a process that runs a user's file sends is data, or is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, fields, is_dataclass
from enum import Enum
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def written(result: Any) -> str:
    """Return a dataclass as JSON in one line; unlike a document for others it may hold NaN and infinity.

    Example:
        >>> from headwise.verbs.check.result import Convention
        >>> written(Convention("causal", "lower_right"))
        '{"name": "causal", "value": "lower_right"}'

    """
    return json.dumps(asdict(result), default=_value)


def read_back(kind: type[T], document: Any) -> T:
    """Return the dataclass that `written` wrote, from its parsed JSON.

    Raises:
        ValueError: the document does not fit the dataclass.

    Example:
        >>> from headwise.verbs.check.result import Convention
        >>> read_back(Convention, {"name": "causal", "value": "lower_right"})
        Convention(name='causal', value='lower_right')

    """
    result: T = _read(kind, document)
    return result


def _value(member: object) -> Any:
    if isinstance(member, Enum):
        return member.value
    raise TypeError(f"a result holds a value of type {type(member).__name__}, which has no form in JSON")


def _read(kind: Any, value: Any) -> Any:
    if get_origin(kind) in {UnionType, Union}:
        return _read_union(kind, value)
    if get_origin(kind) is tuple:
        return _read_tuple(kind, value)
    if is_dataclass(kind):
        return _read_dataclass(kind, value)
    if issubclass(kind, Enum):
        return _read_member(kind, value)
    # A bool is an int to Python, and a whole number may be written without its point.
    if type(value) is kind:
        return value
    if kind is float and type(value) is int:
        return float(value)
    raise _misfit(value, kind)


def _read_dataclass(kind: Any, value: Any) -> Any:
    if not isinstance(value, dict) or set(value) != {field.name for field in fields(kind)}:
        raise _misfit(value, kind)
    hints = get_type_hints(kind)
    return kind(**{name: _read(hints[name], part) for name, part in value.items()})


def _read_member(kind: Callable[[Any], Enum], value: Any) -> Enum:
    try:
        return kind(value)
    except ValueError as error:
        raise _misfit(value, kind) from error


def _read_union(kind: Any, value: Any) -> Any:
    for choice in get_args(kind):
        try:
            return _read(choice, value)
        except ValueError:
            continue
    raise _misfit(value, kind)


def _read_tuple(kind: Any, value: Any) -> tuple[Any, ...]:
    part, more = get_args(kind)
    if not isinstance(value, list) or more is not Ellipsis:
        raise _misfit(value, kind)
    return tuple(_read(part, each) for each in value)


def _misfit(value: object, kind: Any) -> ValueError:
    return ValueError(f"{value!r:.80} stands where {getattr(kind, '__name__', kind)} must")
