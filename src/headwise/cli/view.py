"""The command `headwise view`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from headwise.cli import view_options as given
from headwise.cli.options import DebugOption, JsonOption, console, write_json
from headwise.cli.page_path import checked_page_path
from headwise.cli.view_request import (
    DEFAULT_MODEL,
    Reading,
    checked_reading,
    default_page,
    parsed_rows,
    refuse_unknown_model,
    refuse_unquoted,
)
from headwise.errors import HeadwiseError
from headwise.verbs.terminal import printable

if TYPE_CHECKING:
    from headwise.verbs.view import Comparison, View


def view_command(
    context: typer.Context,
    model: given.ModelArgument = DEFAULT_MODEL,
    text: given.TextArgument = None,
    *,
    text_file: given.TextFileOption = None,
    image: given.ImageOption = None,
    against: given.AgainstOption = None,
    against_text: given.AgainstTextOption = None,
    against_text_file: given.AgainstTextFileOption = None,
    layer: given.LayerOption = None,
    rows: given.RowsOption = None,
    scores: given.ScoresOption = False,
    part: given.PartOption = None,
    decoder_text: given.DecoderTextOption = None,
    out: given.OutOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show what every head of a model does on a text or an image.

    A table of the heads that stand out, and a page with a map of every head that opens without a network.
    """
    refuse_unquoted(text, context.args)
    page = None
    if out is not None or not as_json:
        page = checked_page_path(out or default_page(model, against=against), such_as="view.html")
    refuse_unknown_model(model)
    wanted_rows = parsed_rows(rows)
    reading = checked_reading(
        model,
        text=text,
        text_file=text_file,
        image=image,
        against=against,
        against_text=against_text,
        against_text_file=against_text_file,
        decoder_text=decoder_text,
    )
    with progress() as notify:
        shown = _look(model, reading, layer=layer, rows=wanted_rows, scores=scores, part=part, notify=notify)
        if page is not None:
            notify(f"writing {page}")
            _write(shown, page)
    _tell(shown, page, as_json=as_json)


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Show on standard error what is being done: a spinner in a terminal, lines elsewhere."""
    errors = Console(stderr=True, markup=False, highlight=False, emoji=False)
    if not errors.is_terminal:
        yield lambda step: errors.print(printable(step))
        return
    with errors.status("Starting") as status:
        yield lambda step: status.update(printable(step))


def _look(
    model: str,
    reading: Reading,
    *,
    layer: int | None,
    rows: tuple[int, ...],
    scores: bool,
    part: given.Part | None,
    notify: Callable[[str], None],
) -> View | Comparison:
    # Here and not above, for torch takes seconds to load, and what is wrong by itself is told at once.
    from headwise.verbs.view import view

    look = partial(
        view,
        image=reading.image,
        decoder_text=reading.decoder_text,
        part=part,
        layer=layer,
        rows=rows,
        notify=notify,
    )
    return _once_or_twice(model, reading, look, scores=scores, notify=notify)


def _once_or_twice(
    model: str, reading: Reading, look: Callable[..., View], *, scores: bool, notify: Callable[[str], None]
) -> View | Comparison:
    """Run one model on one text, or twice: two models, or one on two texts."""
    # torch again.
    from headwise.models.opening.opened_model import open_model
    from headwise.verbs.view import Comparison

    if reading.second_model is not None:
        first = look(model, reading.text, scores=scores)
        with _said_of("--against"):
            return Comparison(first, look(reading.second_model, reading.text, scores=scores))
    if reading.second_text is not None:
        opened = open_model(model, notify=notify)
        first = look(opened, reading.text, scores=scores)
        with _said_of("--against-text"):
            # The scores are of the model, whatever the text.
            return Comparison(first, look(opened, reading.second_text))
    return look(model, reading.text, scores=scores)


@contextlib.contextmanager
def _said_of(option: str) -> Iterator[None]:
    """Say of which option an error is."""
    try:
        yield
    except HeadwiseError as error:
        raise type(error)(f"of {option}: {error}") from error


def _write(shown: View | Comparison, page: Path) -> None:
    # torch again.
    from headwise.verbs.view.render_page import write_page

    write_page(shown, page)


def _tell(shown: View | Comparison, page: Path | None, *, as_json: bool) -> None:
    # torch again.
    from headwise.verbs.view.render_json import to_json
    from headwise.verbs.view.render_text import print_view

    if as_json:
        write_json(to_json(shown, page=page))
        return
    print_view(shown, console())
    console().print(f"Page: {printable(str(page))}")
