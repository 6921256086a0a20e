"""Texts that are given as a file or on standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO

from headwise.errors import ArgumentError
from headwise.models.given_text import check_text

STANDARD_INPUT = "-"
LARGEST_BYTES = 16 * 2**20
"""More text than any model reads at once; what is larger is a slip of the keyboard."""


def read_text_file(given: str, *, option: str) -> str:
    """Return the text of a file, or with `-` of standard input; a byte order mark is left out.

    Args:
        given: the path, or `-`.
        option: the option that it was given by, for messages.

    Raises:
        ArgumentError: there is no such file, it cannot be read, is too large, is not UTF-8, or has no words.

    """
    name = f"{option} {given}"
    raw = _bytes_of(given, name)
    if len(raw) > LARGEST_BYTES:
        raise ArgumentError(
            f"{name} is larger than {LARGEST_BYTES:,} bytes, and no model reads so much at once; give a part "
            "of it"
        )
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ArgumentError(
            f"{name} is not UTF-8: byte {error.start:,} is {raw[error.start]:02X} ({error.reason}); save it "
            "as UTF-8"
        ) from error
    text = text.removeprefix("\ufeff")
    try:
        check_text(text)
    except ArgumentError as error:
        raise ArgumentError(f"{name}: {error}") from error
    return text


def _bytes_of(given: str, name: str) -> bytes:
    if given == STANDARD_INPUT:
        # Closed by whoever started the process, it is not there at all.
        stream: BinaryIO | None = getattr(sys.stdin, "buffer", None)
        if stream is None:
            raise ArgumentError(f"{name} is standard input, which is closed; give a file")
        return stream.read(LARGEST_BYTES + 1)
    try:
        with Path(given).expanduser().open("rb") as file:
            return file.read(LARGEST_BYTES + 1)
    except IsADirectoryError as error:
        raise ArgumentError(f"{name} is a folder; give a text file") from error
    except FileNotFoundError as error:
        raise ArgumentError(f"{name} does not exist; give a text file") from error
    except (OSError, ValueError) as error:
        cause = getattr(error, "strerror", None) or str(error)
        raise ArgumentError(f"{name} cannot be read: {cause}; give a text file") from error
