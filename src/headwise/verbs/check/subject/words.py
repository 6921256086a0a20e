"""The words of a name, whatever the style it is written in."""

from __future__ import annotations

import re

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_APART = re.compile(r"[^A-Za-z0-9]+")


def words_of(name: str) -> tuple[str, ...]:
    """Return the words in small letters: `W_q` and `wQ` are w and q, `attnMask` is attn and mask."""
    return tuple(word.lower() for word in _APART.split(_HUMP.sub("_", name)) if word)


def plain(name: str) -> str:
    """Return a name without its style: `num_heads`, `numHeads` and `NumHeads` are one."""
    return "".join(words_of(name))
