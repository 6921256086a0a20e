"""The parameters of a callable, in Python or built in."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

from torch import nn

from headwise.errors import ArgumentError


def signature_of(target: Callable[..., Any]) -> Signature:
    """Return the parameters of a function, or of what a module or an object does when it is called.

    Raises:
        ArgumentError: nothing tells them.

    """
    called = target.forward if isinstance(target, nn.Module) else target
    try:
        return inspect.signature(called)
    except (TypeError, ValueError):
        told = _told_by_docs(called)
    if told is None:
        name = getattr(target, "__qualname__", type(target).__name__)
        raise ArgumentError(
            f"{name} does not tell its parameters; wrap it in a function that does, such as "
            "def attend(query, key, value, mask=None)"
        )
    return told


def is_required(parameter: Parameter) -> bool:
    """Return whether a call without it fails."""
    is_open_ended = parameter.kind in {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}
    return parameter.default is Parameter.empty and not is_open_ended


def has_kind(signature: Signature, kind: Any) -> bool:
    """Return whether there is a parameter of a kind, such as `*args`."""
    return any(parameter.kind is kind for parameter in signature.parameters.values())


def _told_by_docs(target: Any) -> Signature | None:
    """Return the parameters that the docs begin with, as torch's built-in functions have it."""
    # It may go over several lines, up to the type of what is returned.
    told = " ".join((getattr(target, "__doc__", None) or "").split("->")[0].split())
    try:
        shown = ast.parse(f"def {told}: pass").body[0]
    except SyntaxError:
        return None
    if not isinstance(shown, ast.FunctionDef):
        return None
    plain, named = shown.args.args, shown.args.kwonlyargs
    defaults = [None] * (len(plain) - len(shown.args.defaults)) + list(shown.args.defaults)
    return Signature(
        [
            Parameter(argument.arg, kind, default=_literal(default))
            for arguments, given, kind in (
                (plain, defaults, Parameter.POSITIONAL_OR_KEYWORD),
                (named, shown.args.kw_defaults, Parameter.KEYWORD_ONLY),
            )
            for argument, default in zip(arguments, given, strict=True)
        ]
    )


def _literal(default: ast.expr | None) -> Any:
    if default is None:
        return Parameter.empty
    try:
        return ast.literal_eval(default)
    except ValueError:
        return None
