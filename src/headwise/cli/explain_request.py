"""What `headwise explain` was asked for: which subject, and that its options are ones of this subject."""

from __future__ import annotations

from collections.abc import Mapping

import typer

from headwise.errors import ArgumentError, ModelError
from headwise.models.opening.source import find_source

MODEL = "MODEL"
OPTIONS_OF = {
    "two-heads": frozenset(
        {"tokens", "d_model", "num_heads", "num_kv_heads", "head_dim", "seed", "causal", "out"}
    ),
    "bank": frozenset({"seed"}),
    MODEL: frozenset({"text", "layer", "head", "query"}),
}
"""The parameters of the command that each subject takes, beside those that every subject takes."""
EXAMPLES = tuple(name for name in OPTIONS_OF if name != MODEL)
OF_EVERY_SUBJECT = frozenset({"subject", "as_json", "debug"})


def check_subject(subject: str) -> str:
    """Return which of the subjects was named: an example, or `MODEL` for the name of a model.

    Raises:
        ArgumentError: it is empty.
        ModelError: it is no example, and no model has this name.

    """
    if subject in EXAMPLES:
        return subject
    try:
        find_source(subject)
    except ModelError as error:
        raise ModelError(f"{error}. The examples are {' and '.join(EXAMPLES)}") from error
    return MODEL


def check_asked(given: Mapping[str, object]) -> None:
    """Refuse a model without what says which call of it to trace.

    Raises:
        ArgumentError: an option is missing.

    """
    missing = [f"--{name}" for name, value in given.items() if value is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise ArgumentError(
            f"{' and '.join(missing)} {verb} missing; a model is explained on a "
            'text, one head of one layer: --text "The bank raised rates" --layer 2 --head 5'
        )


def check_options(subject: str, context: typer.Context) -> None:
    """Refuse an option that was given and says nothing about the subject.

    Raises:
        ArgumentError: there is one.

    """
    given = {name for name in context.params if was_given(name, context)}
    foreign = sorted(given - OPTIONS_OF[subject] - OF_EVERY_SUBJECT)
    if foreign:
        others = [other for other, options in OPTIONS_OF.items() if foreign[0] in options]
        raise ArgumentError(
            f"--{foreign[0].replace('_', '-')} is an option of {' and '.join(map(_named, others))}, and "
            f"{_named(subject)} was asked for; leave it out"
        )


def _named(subject: str) -> str:
    return "a model" if subject == MODEL else subject


def was_given(name: str, context: typer.Context) -> bool:
    """Return whether a parameter was given on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
