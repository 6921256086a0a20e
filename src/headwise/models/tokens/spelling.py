"""How a tokenizer spells text in its vocabulary: byte letters, space marks, word pieces.

A vocabulary does not hold text but a spelling of it. This finds out which spelling a tokenizer uses, from the
tokenizer's own decoder and pre-tokenizer, and turns one vocabulary entry back into the bytes it stands for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from transformers import PreTrainedTokenizerBase

_ONE_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


@dataclass(frozen=True)
class Spelling:
    """The rules one tokenizer spells by.

    Args:
        byte_level: every byte is one letter of GPT-2's byte alphabet.
        byte_fallback: a byte outside the vocabulary is an entry like `<0xE2>`.
        space_mark: the letter that stands for a space, or nothing.
        added_space: a space is put before the whole text.
        continuation: what an entry starts with that goes on with a word, such as `##`, or nothing.
        word_end: what an entry ends with that ends a word, such as `</w>`, or nothing.

    """

    byte_level: bool = False
    byte_fallback: bool = False
    space_mark: str = ""
    added_space: bool = False
    continuation: str = ""
    word_end: str = ""

    @property
    def gives_text_back(self) -> bool:
        """Whether the tokens of a text put together are the text; not where word ends replace the spaces."""
        return self.byte_level and not self.word_end

    def raw(self, entry: str) -> bytes:
        """Return the bytes that a vocabulary entry stands for, without any space that is not spelled out."""
        if self.word_end:
            entry = entry.removesuffix(self.word_end)
        if self.byte_level:
            letters = byte_letters()
            return b"".join(
                bytes([letters[letter]]) if letter in letters else letter.encode("utf-8") for letter in entry
            )
        one_byte = _ONE_BYTE.fullmatch(entry) if self.byte_fallback else None
        if one_byte:
            return bytes.fromhex(one_byte[1])
        if self.continuation:
            entry = entry.removeprefix(self.continuation)
        if self.space_mark:
            entry = entry.replace(self.space_mark, " ")
        return entry.encode("utf-8")


@cache
def byte_letters() -> dict[str, int]:
    """Return GPT-2's byte alphabet: the letter that spells each byte.

    Printable Latin-1 characters spell themselves; the other bytes, in order, get the letters from U+0100 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(0x100 + place): byte for place, byte in enumerate(others)
    }


def spelling_of(tokenizer: PreTrainedTokenizerBase) -> Spelling:
    """Find out how a tokenizer spells text."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        # Written in Python, over sentencepiece: the space mark is all that such a vocabulary has.
        return Spelling(space_mark="▁", byte_fallback=True, added_space=True)
    decoders = list(_steps(backend.decoder))
    parts = decoders + list(_steps(backend.pre_tokenizer))
    by_type = {part.get("type"): part for part in parts}
    metaspace = by_type.get("Metaspace", {})
    spaces = [part for part in decoders if part.get("type") == "Replace" and part["content"] == " "]
    replaced = spaces[0]["pattern"].get("String", "") if spaces else ""
    stripped = by_type.get("Strip", {}).get("start", 0) > 0
    return Spelling(
        byte_level="ByteLevel" in by_type,
        byte_fallback="ByteFallback" in by_type,
        space_mark=metaspace.get("replacement", "") or replaced,
        added_space=stripped or metaspace.get("prepend_scheme", "never") != "never",
        continuation=by_type.get("WordPiece", {}).get("prefix", ""),
        word_end=getattr(backend.model, "end_of_word_suffix", None) or "",
    )


def _steps(part: Any) -> Iterator[dict[str, Any]]:
    """Yield the steps of a decoder or pre-tokenizer as plain values, sequences laid flat."""
    if part is None:
        return
    waiting = [json.loads(part.__getstate__())]
    while waiting:
        step = waiting.pop(0)
        inner = step.get("decoders") or step.get("pretokenizers")
        if inner:
            waiting = inner + waiting
        else:
            yield step
