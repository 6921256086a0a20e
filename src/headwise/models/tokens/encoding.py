"""Running a tokenizer on one text: nothing cut off, nothing filled up, and nothing lost without a word."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedTokenizerBase

from headwise.errors import ArgumentError, ModelError
from headwise.models.given_text import check_text
from headwise.models.short_cause import short_cause
from headwise.models.tokens.spelling import byte_letters, spelling_of


def encode(
    tokenizer: PreTrainedTokenizerBase, text: str
) -> tuple[tuple[int, ...], list[tuple[int, int]] | None]:
    """Return the token ids of a text, special tokens included, and where each lies if the tokenizer can tell.

    Raises:
        ArgumentError: the text is empty, has a lone surrogate, or a character the tokenizer would drop.
        ModelError: the tokenizer failed.

    """
    check_text(text)
    _check_spelled(tokenizer, text)
    try:
        encoded: Any = tokenizer(
            text, padding=False, truncation=False, return_offsets_mapping=tokenizer.is_fast, verbose=False
        )
    except BaseException as error:
        # The tokenizers library panics with an error that derives from BaseException.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ModelError(f"the tokenizer failed on this text: {short_cause(error)}") from error
    ids = tuple(encoded["input_ids"])
    if len(ids) <= tokenizer.num_special_tokens_to_add(pair=False):
        raise ArgumentError(f"text={text[:80]!r} has nothing that the tokenizer makes a token of; give words")
    return ids, encoded["offset_mapping"] if tokenizer.is_fast else None


def _check_spelled(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    lost = _unspelled_bytes(tokenizer).intersection(text.encode("utf-8"))
    if lost:
        place, character = next(
            (place, character)
            for place, character in enumerate(text)
            if lost.intersection(character.encode("utf-8"))
        )
        raise ArgumentError(
            f"text has U+{ord(character):04X} at character {place}, which this tokenizer drops without a "
            f"word (its vocabulary lacks the byte {min(lost):02X}); take it out"
        )


def _unspelled_bytes(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Return the bytes that a byte-level vocabulary has no entry for, and so loses."""
    if not spelling_of(tokenizer).gives_text_back:
        return set()
    backend: Any = tokenizer.backend_tokenizer
    return {byte for letter, byte in byte_letters().items() if backend.token_to_id(letter) is None}
