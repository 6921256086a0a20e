"""What can be said about a text before any tokenizer is there."""

from __future__ import annotations

import re

from headwise.errors import ArgumentError

_SURROGATE = re.compile("[\ud800-\udfff]")


def check_text(text: str) -> None:
    """Refuse a text that no tokenizer could take.

    Raises:
        ArgumentError: it is no text, is empty or only whitespace, or has a lone surrogate.

    Example:
        >>> check_text("The bank raised rates")

    """
    if not isinstance(text, str):
        raise ArgumentError(f"text is a {type(text).__name__}; pass one text as str")
    if not text.strip():
        kind = f"only whitespace ({len(text)} characters)" if text else "empty"
        raise ArgumentError(f"text is {kind}; give at least one word")
    surrogate = _SURROGATE.search(text)
    if surrogate:
        raise ArgumentError(
            f"text has a lone surrogate U+{ord(surrogate[0]):04X} at character {surrogate.start()}: half a "
            "character, or a byte that was not UTF-8; take it out"
        )
