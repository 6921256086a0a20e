"""What `headwise check` was asked for: which of its three forms, and that its options belong to this form."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import typer

from headwise.cli.explain_request import was_given
from headwise.errors import ArgumentError, ModelError
from headwise.models.opening.source import find_source

LONGEST_SECONDS = 86_400.0


class CheckForm(Enum):
    """What is examined; each with how a sentence calls it."""

    FILE = "a Python file"
    MODEL = "a model"
    MACHINE = "this machine"


_SIZES = ("num_heads", "num_kv_heads", "head_dim", "value_head_dim", "d_model")
_AS_THEY_ARE = (*_SIZES, "window", "softcap", "scale", "axes", "mask_means", "seed")
_OF_SEVERAL = ("causal", "causal_align", "rope", "rope_base", "argument")
OPTIONS_OF = {
    CheckForm.FILE: frozenset({*_AS_THEY_ARE, *_OF_SEVERAL, "time_limit"}),
    CheckForm.MODEL: frozenset({"text", "seed"}),
    CheckForm.MACHINE: frozenset({"machine"}),
}
"""The parameters of the command that each form takes, beside those that every form takes."""
_OF_EVERY_FORM = frozenset({"target", "as_json", "debug"})


class InFile(NamedTuple):
    """A Python file and the name of what is to be checked in it, as `FILE.py:NAME` gives them."""

    path: Path
    name: str


def asked_form(target: str | None, context: typer.Context) -> CheckForm:
    """Return what is to be examined, and refuse options that say nothing about it.

    Raises:
        ArgumentError: nothing was named, or a target beside --machine, or an option of another form.
        ModelError: no model has this name.

    """
    is_machine = bool(context.params["machine"])
    if is_machine and target is not None:
        raise ArgumentError(
            f"--machine checks the backends of this machine, and {target!r} was named too; leave one out"
        )
    if target is None and not is_machine:
        raise ArgumentError(
            "nothing to check was named; give FILE.py:NAME (a function or module of yours), MODEL (a "
            "checkpoint), or --machine (the attention backends here)"
        )
    form = CheckForm.MACHINE if target is None else CheckForm.FILE if in_file(target) else CheckForm.MODEL
    _refuse_foreign(form, context)
    if form is CheckForm.MODEL and target is not None:
        _refuse_unknown_model(target)
    return form


def in_file(target: str) -> InFile | None:
    """Return the file and the name of `FILE.py:NAME`, None if `target` names no Python file.

    Example:
        >>> in_file("models/attention.py:Attention")
        InFile(path=PosixPath('models/attention.py'), name='Attention')
        >>> in_file("smollm2-135m") is None
        True

    """
    if target.endswith(".py"):
        return InFile(Path(target), "")
    path, colon, name = target.rpartition(":")
    if colon and path.endswith(".py"):
        return InFile(Path(path), name.strip())
    return None


def asked_of_file(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `headwise.check` is to be given, from the command's parameters, without those left out.

    Raises:
        ArgumentError: options contradict each other, or one has another form.

    """
    asked = {name: given[name] for name in _AS_THEY_ARE}
    asked["causal"] = _declared_causal(given["causal"], given["causal_align"])
    asked["rope"] = _rope(given["rope"], given["rope_base"])
    asked["arguments"] = _named_arguments(given["argument"])
    return {name: value for name, value in asked.items() if value is not None}


def checked_seconds(given: float) -> float:
    """Return the time limit.

    Raises:
        ArgumentError: it is not above 0, or longer than a day.

    """
    if not 0 < given <= LONGEST_SECONDS:
        raise ArgumentError(
            f"--time-limit {given:g} must be seconds above 0 and at most {LONGEST_SECONDS:g} (a day)"
        )
    return given


def _declared_causal(causal: bool | None, align: str | None) -> bool | str | None:
    if causal is False and align is not None:
        raise ArgumentError(
            f"--no-causal and --causal-align {align} contradict each other; leave one of them out"
        )
    return causal if align is None else align


def _rope(pairing: str | None, base: float | None) -> dict[str, str | float] | None:
    """Return what `headwise.Rope` is to be given, which is made where torch is loaded."""
    if base is not None and pairing is None:
        raise ArgumentError(f"--rope-base {base:g} needs --rope half_split or --rope interleaved beside it")
    if pairing is None:
        return None
    return {"pairing": pairing} if base is None else {"pairing": pairing, "base": base}


def _named_arguments(given: Sequence[str] | None) -> dict[str, Any] | None:
    if not given:
        return None
    roles: dict[str, Any] = {}
    for each in given:
        theirs, _, role = (part.strip() for part in each.partition("="))
        if not (theirs and role):
            raise ArgumentError(
                f"--argument {each!r} is not of the form THEIRS=ROLE; write for example "
                "--argument attn_bias=bias, or --argument layer_index=0 for a value"
            )
        if theirs in roles:
            raise ArgumentError(f"--argument {theirs} was given twice, as {roles[theirs]} and as {role}")
        roles[theirs] = _role_or_value(role)
    return roles


def _role_or_value(given: str) -> Any:
    """Return the name of a role as it is, and a number, true, false or null as the value to hand over."""
    try:
        value = json.loads(given)
    except ValueError:
        return given
    return value if value is None or isinstance(value, int | float) else given


def _refuse_foreign(form: CheckForm, context: typer.Context) -> None:
    given = {name for name in context.params if was_given(name, context)}
    foreign = sorted(given - OPTIONS_OF[form] - _OF_EVERY_FORM)
    if foreign:
        owners = " or ".join(other.value for other, options in OPTIONS_OF.items() if foreign[0] in options)
        raise ArgumentError(
            f"--{foreign[0].replace('_', '-')} is an option for checking {owners}, and {form.value} is to be "
            "checked; leave it out"
        )


def _refuse_unknown_model(target: str) -> None:
    try:
        find_source(target)
    except ModelError as error:
        hint = ""
        if ":" in target:
            hint = ". What is to be checked in a file is named FILE.py:NAME, and the file ends in .py"
        raise ModelError(f"{error}{hint}") from error
