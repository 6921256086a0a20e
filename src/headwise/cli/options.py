"""The options that every command shares, and output that belongs to none of them."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console

_DEBUG = "debug"


def _remember_debug(context: typer.Context, wanted: bool) -> bool:
    if wanted:
        context.ensure_object(dict)[_DEBUG] = True
    return wanted


# Eager, so that it counts although another option turns out to be wrong.
DebugOption = Annotated[
    bool,
    typer.Option(
        "--debug", callback=_remember_debug, is_eager=True, help="On an error, show the traceback as well."
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document to standard output and nothing else.")
]


def wants_debug(shared: dict[str, Any]) -> bool:
    """Return whether `--debug` was given anywhere on the command line."""
    return bool(shared.get(_DEBUG))


def console() -> Console:
    """Return the console that commands print to; it takes text as it is: brackets of a user stay brackets."""
    return Console(markup=False, highlight=False, emoji=False)


def write_json(document: dict[str, Any]) -> None:
    """Write `document` to standard output, in ASCII, so that any terminal and any pipe can carry it."""
    json.dump(document, sys.stdout, indent=2, allow_nan=False)
    sys.stdout.write("\n")
