"""What `headwise explain` was asked for: which subject, and that its options are ones of this subject."""

from __future__ import annotations

import typer

from headwise.errors import ArgumentError

OPTIONS_OF = {
    "two-heads": frozenset({"tokens", "d_model", "num_heads", "num_kv_heads", "head_dim", "seed", "causal"}),
    "bank": frozenset({"seed"}),
}
"""The parameters of the command that each subject takes, beside those that every subject takes."""
OF_EVERY_SUBJECT = frozenset({"subject", "as_json", "debug"})


def check_subject(subject: str) -> None:
    """Refuse what there is no explanation of.

    Raises:
        ArgumentError: it is none of the subjects.

    """
    if subject not in OPTIONS_OF:
        raise ArgumentError(
            f"there is nothing named {subject!r} to explain; there is: {', '.join(OPTIONS_OF)}"
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
            f"--{foreign[0].replace('_', '-')} is an option of {' and '.join(others)}, and {subject} was "
            "asked for; leave it out"
        )


def was_given(name: str, context: typer.Context) -> bool:
    """Return whether a parameter was given on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
