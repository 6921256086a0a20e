"""What `headwise view` was asked for, checked as far as it can be before any model is loaded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headwise.cli.text_file import STANDARD_INPUT, read_text_file
from headwise.errors import ArgumentError, ModelError
from headwise.models.given_text import check_text
from headwise.models.opening.source import find_source

DEFAULT_MODEL = "smollm2-135m"
DEFAULT_TEXT = "The bank raised rates because inflation was rising"


@dataclass(frozen=True)
class Reading:
    """What is read: a text or an image, the text or the model to compare with, and a text for a decoder."""

    text: str | None
    image: Path | None
    second_text: str | None
    second_model: str | None
    decoder_text: str | None = None


def checked_reading(
    model: str,
    *,
    text: str | None,
    text_file: str | None,
    image: Path | None,
    against: str | None,
    against_text: str | None,
    against_text_file: str | None,
    decoder_text: str | None,
) -> Reading:
    """Return what is to be read, files of text read; the sample sentence where nothing was given.

    Raises:
        ArgumentError: options that exclude each other, a text that cannot be, a file that cannot be read, or
            nothing to compare.
        ModelError: there is no such model.

    """
    given = {"TEXT": text, "--text-file": text_file, "--image": image}
    _refuse_several(given, "a model reads one of them")
    second = {"--against": against, "--against-text": against_text, "--against-text-file": against_text_file}
    _refuse_several(second, "one comparison at a time shows what the difference comes from")
    if text_file == against_text_file == STANDARD_INPUT:
        raise ArgumentError(
            "--text-file - and --against-text-file - would both read standard input; name a file"
        )
    second_text = _text(against_text, against_text_file, "--against-text")
    if image is not None:
        _check_image(image)
        if second_text is not None:
            raise ArgumentError("--image is no text to compare another text with; leave one of them out")
    first_text = _text(text, text_file, "--text")
    if decoder_text is not None:
        _check(decoder_text, "--decoder-text")
    if first_text is None and image is None:
        first_text = DEFAULT_TEXT
    if against is not None:
        refuse_unknown_model(against, option="--against")
        if against == model:
            raise ArgumentError(f"--against {against} is the same model; name another, or use --against-text")
    if second_text is not None and second_text == first_text:
        raise ArgumentError("the text to compare with is the same text; give another, or use --against MODEL")
    return Reading(first_text, image, second_text, against, decoder_text)


def parsed_rows(given: str | None) -> tuple[int, ...]:
    """Return the token numbers of `--rows`, such as `0,5,-1`.

    Raises:
        ArgumentError: one is no whole number, or is there twice.

    Example:
        >>> parsed_rows("0, 5,-1")
        (0, 5, -1)

    """
    if given is None:
        return ()
    rows = tuple(_whole(piece, given) for piece in given.split(","))
    # Here and not above, for `plan` and `--help` need no NumPy.
    from headwise.evidence import Collect

    return tuple(Collect(rows=rows).rows)


def refuse_unquoted(text: str | None, more: list[str]) -> None:
    """Refuse a text that the shell took apart into words.

    Raises:
        ArgumentError: there are words after the text.

    """
    if more:
        raise ArgumentError(
            f"TEXT is {text!r} and {more[0]!r} follows it; put a text of several words in quotes"
        )


def refuse_unknown_model(model: str, *, option: str | None = None) -> None:
    """Refuse a name that no model can have, before anything is loaded.

    Raises:
        ArgumentError: it is empty.
        ModelError: there is no such model; a sentence is taken for a text in the model's place.

    """
    try:
        find_source(model)
    except ModelError as error:
        if len(model.split()) < 2:
            raise
        usual = (
            f"If this is the text, name the model before it: headwise view {DEFAULT_MODEL} TEXT"
            if option is None
            else f"If this is a text to compare with, use {option}-text"
        )
        raise ModelError(f"{error}. {usual}") from error


def default_page(model: str, *, against: str | None = None) -> Path:
    """Return the page's name for a model that may be a path or a hub id, or for two of them.

    Example:
        >>> default_page("models/My Model.gguf").name
        'headwise-My-Model.gguf.html'

    """
    names = [
        re.sub(r"[^A-Za-z0-9._-]+", "-", Path(each).name).strip("-.")[:80] for each in (model, against or "")
    ]
    name = "-against-".join(filter(None, names))
    return Path(f"headwise-{name}.html" if name else "headwise.html")


def _refuse_several(given: Mapping[str, object], why: str) -> None:
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise ArgumentError(f"{' and '.join(names)} were both given, and {why}; leave one out")


def _text(text: str | None, file: str | None, option: str) -> str | None:
    if file is not None:
        return read_text_file(file, option=f"{option}-file")
    if text is not None:
        _check(text, option)
    return text


def _check(text: str, option: str) -> None:
    try:
        check_text(text)
    except ArgumentError as error:
        # The first text has no option of its own.
        raise ArgumentError(str(error) if option == "--text" else f"{option}: {error}") from error


def _check_image(path: Path) -> None:
    try:
        is_folder, exists = path.is_dir(), path.exists()
    except OSError as error:
        raise ArgumentError(f"--image {path} cannot be looked at: {error.strerror}") from error
    if is_folder:
        raise ArgumentError(f"--image {path} is a folder; give an image file")
    if not exists:
        raise ArgumentError(f"--image {path} does not exist; give an image file")


def _whole(piece: str, given: str) -> int:
    try:
        return int(piece)
    except ValueError as error:
        raise ArgumentError(
            f"--rows {given[:80]} has {piece[:40]!r} in it, which is no whole number; give numbers of tokens "
            "between commas, such as 0,5,-1"
        ) from error
