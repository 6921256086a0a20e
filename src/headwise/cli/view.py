"""The command `headwise view`."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headwise.cli.options import DebugOption, JsonOption, console, write_json
from headwise.errors import ArgumentError, ModelError
from headwise.models.given_text import check_text
from headwise.models.opening.source import find_source
from headwise.verbs.terminal import printable

DEFAULT_MODEL = "smollm2-135m"
DEFAULT_TEXT = "The bank raised rates because inflation was rising"


def view_command(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="A catalogue name, a folder, a .safetensors or .gguf file, or a hub id."
        ),
    ] = DEFAULT_MODEL,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="What the model reads, in quotes.")
    ] = DEFAULT_TEXT,
    *,
    out: Annotated[
        Path | None,
        typer.Option(help="The page to write; headwise-MODEL.html if left out, none with --json."),
    ] = None,
    layer: Annotated[int | None, typer.Option(min=0, help="A layer to look at closely.")] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show what every head of a model does on a text.

    A table of the heads that stand out, and a page with a map of every head that opens without a network.
    """
    refuse_unquoted(text, context.args)
    page = None if out is None and as_json else checked_page_path(out or default_page(model))
    refuse_unknown_model(model)
    check_text(text)
    # Here and not above, for torch takes seconds to load, and what is wrong by itself should be told at once.
    from headwise.verbs.view import view
    from headwise.verbs.view.render_json import to_json
    from headwise.verbs.view.render_page import write_page
    from headwise.verbs.view.render_text import print_view

    with progress() as notify:
        found = view(model, text, layer=layer, notify=notify)
        if page is not None:
            write_page(found, page)
    if as_json:
        write_json(to_json(found, page=page))
        return
    print_view(found, console())
    console().print(f"Page: {printable(str(page))}")


def refuse_unquoted(text: str, more: list[str]) -> None:
    """Refuse a text that the shell took apart into words.

    Raises:
        ArgumentError: there are words after the text.

    """
    if more:
        raise ArgumentError(
            f"TEXT is {text!r} and {more[0]!r} follows it; put a text of several words in quotes"
        )


def refuse_unknown_model(model: str) -> None:
    """Refuse a name that no model can have, before anything is loaded.

    Raises:
        ArgumentError: it is empty.
        ModelError: there is no such model; a sentence is taken for a text that lacks the model before it.

    """
    try:
        find_source(model)
    except ModelError as error:
        if len(model.split()) < 2:
            raise
        usual = f"headwise view {DEFAULT_MODEL} TEXT"
        raise ModelError(f"{error}. If this is the text, name the model before it: {usual}") from error


def default_page(model: str) -> Path:
    """Return the page's name for a model that may be a path or a hub id.

    Example:
        >>> default_page("models/My Model.gguf").name
        'headwise-My-Model.gguf.html'

    """
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(model).name).strip("-.")[:80]
    return Path(f"headwise-{name}.html" if name else "headwise.html")


def checked_page_path(path: Path) -> Path:
    """Return `path` if a page can be written there, before any model is loaded.

    Raises:
        ArgumentError: it is a folder or a device, or its folder is missing or closed to writing.

    """
    given = f"--out {path}"
    try:
        is_folder, is_file, exists = path.is_dir(), path.is_file(), path.exists()
        folder_there = path.parent.is_dir()
    except OSError as error:
        raise ArgumentError(f"{given} cannot be looked at: {error.strerror}; name another file") from error
    if is_folder:
        raise ArgumentError(f"{given} is a folder; name the file to write, such as {path / 'view.html'}")
    if exists and not is_file:
        raise ArgumentError(f"{given} is not a regular file; name the file to write, such as view.html")
    if not folder_there:
        raise ArgumentError(f"{given} lies in a folder that does not exist; make {path.parent} first")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ArgumentError(f"{given} lies in a folder that you may not write to; name a file elsewhere")
    return path


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Show on standard error what is being done: a spinner in a terminal, lines elsewhere."""
    errors = Console(stderr=True, markup=False, highlight=False, emoji=False)
    if not errors.is_terminal:
        yield lambda step: errors.print(printable(step))
        return
    with errors.status("Starting") as status:
        yield lambda step: status.update(printable(step))
