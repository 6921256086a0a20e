"""The door: whatever a user points at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwise.errors import ArgumentError
from headwise.verbs.check.expected import Expected
from headwise.verbs.check.subject.building import examined_when_built, is_to_be_built
from headwise.verbs.check.subject.examined import Examined
from headwise.verbs.check.subject.of_callable import examined_callable


def subject_of(
    target: Any,
    *,
    expected: Expected,
    arguments: Mapping[str, Any] | None = None,
    weights: Mapping[str, str] | None = None,
) -> Examined:
    """Return the attention under examination, ready to be asked.

    Args:
        target: a function, a `torch.nn.Module`, a class that makes one, or a factory.
        expected: what the caller says of it.
        arguments: what its parameters mean where their names do not say it: `{"their_name": "mask"}`; or a
            value that is no string, which is handed over as it is.
        weights: where its projections are: `{"query": "path.of.weight", ...}`.

    Raises:
        ArgumentError: its parameters, sizes or weights cannot be understood.
        SubjectError: it answers in no way in which it can be asked.
        UnsupportedError: it does more than attention.

    Example:
        >>> def attend(query, key, value, is_causal=False):
        ...     return (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1) @ value
        >>> found = subject_of(attend, expected=Expected(num_heads=4))
        >>> found.form.value, found.sizes.num_heads, sorted(role.value for role in found.takes)
        ('heads', 4, ['causal', 'key', 'query', 'value'])

    """
    if not callable(target):
        raise ArgumentError(
            f"target is a {type(target).__name__}, which cannot be called; pass a function, a module, or a "
            "class or factory that makes one"
        )
    if is_to_be_built(target):
        return examined_when_built(target, expected=expected, arguments=arguments or {}, weights=weights)
    return examined_callable(target, expected=expected, arguments=arguments, weights=weights)
