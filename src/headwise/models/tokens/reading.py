"""Tokens as a person reads them: the text each one stands for, not its spelling in the vocabulary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from transformers import PreTrainedTokenizerBase

from headwise.errors import ArgumentError, ModelError, UnsupportedError
from headwise.models.opening.opened_model import OpenedModel
from headwise.models.tokens.encoding import encode
from headwise.models.tokens.spelling import Spelling, spelling_of

TokenKind = Literal["text", "special", "bytes"]

# The tokenizers library counts in 32 bits.
_NO_ID = 1 << 32


@dataclass(frozen=True)
class Token:
    """One token: its number in the vocabulary, and what it stands for.

    Args:
        id: the number.
        text: the exact text, with its spaces and line breaks; for `special` the token's name; for `bytes` any
            whole characters, and the other bytes in hexadecimal as in `⟨E2 80⟩`.
        kind: `text`; `special` for a token that stands for no text, `[CLS]` or `[UNK]` for example; `bytes`
            for one that holds a part of a character.

    """

    id: int
    text: str
    kind: TokenKind


def read_text(opened: OpenedModel, text: str) -> tuple[tuple[int, ...], tuple[Token, ...]]:
    """Tokenize a text as the model expects it, and say what part of it each token stands for.

    Nothing is cut off or filled up. A tokenizer that spells bytes gives the text back byte by byte. Any other
    (word pieces, sentencepiece) is asked where each token lies in the text, and the token's text is that
    slice as it was typed, with the whitespace before it: "The" stays "The" though the vocabulary has "the".
    Where one character became several tokens, each shows its own piece of it.

    Args:
        opened: a model that reads text.
        text: one text, not empty.

    Returns:
        The token ids, special tokens included, and one `Token` for each.

    Raises:
        ArgumentError: the text is empty, longer than the model's positions, or cannot be written in tokens.
        UnsupportedError: the model reads no text.
        ModelError: the tokenizer failed, or does not belong to the model.

    Example:
        >>> from headwise import open_model
        >>> _, tokens = read_text(open_model("smollm2-135m"), "The bank")
        >>> [token.text for token in tokens]
        ['The', ' bank']

    """
    tokenizer = opened.tokenizer
    if tokenizer is None:
        raise UnsupportedError(f"{opened.name} reads no text: it takes {opened.model.main_input_name}")
    ids, places = encode(tokenizer, text)
    limit = max_positions(opened)
    if limit is not None and len(ids) > limit:
        raise ArgumentError(
            f"text has {len(ids)} tokens and {opened.name} has positions for {limit}; use a shorter text"
        )
    vocabulary = getattr(opened.model.config.get_text_config(), "vocab_size", None)
    if isinstance(vocabulary, int) and max(ids) >= vocabulary:
        raise ModelError(
            f"the tokenizer of {opened.name} makes token {max(ids)} of this text, and the model knows "
            f"{vocabulary} tokens; take tokenizer and weights from the same place"
        )
    tokens = readable_tokens(tokenizer, ids)
    spelling = spelling_of(tokenizer)
    if places is not None and not spelling.gives_text_back:
        tokens = _as_typed(tokens, places, text)
    elif spelling.byte_level and tokens[0].text.startswith(" ") and not text.startswith(" "):
        # The tokenizer put a space of its own before the text.
        tokens = (replace(tokens[0], text=tokens[0].text[1:]), *tokens[1:])
    return ids, tokens


def tokenize(opened: OpenedModel, text: str) -> torch.Tensor:
    """Turn a text into the model's input: the ids of `read_text`, as a batch of one.

    Args:
        opened: a model that reads text.
        text: one text, not empty.

    Returns:
        The token ids, int64, `[1, seq_len]`.

    Raises:
        HeadwiseError: as `read_text` does.

    Example:
        >>> from headwise import open_model
        >>> tokenize(open_model("smollm2-135m"), "The bank raised rates").shape
        torch.Size([1, 4])

    """
    ids, _ = read_text(opened, text)
    return torch.tensor([ids], dtype=torch.int64)


def max_positions(opened: OpenedModel) -> int | None:
    """Return the longest input of a model in tokens, or None where its positions have no end."""
    for name, module in opened.model.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            # Positions are counted from after the padding's row, as in RoBERTa.
            return int(module.num_embeddings) - int(module.padding_idx) - 1
    limit = getattr(opened.model.config.get_text_config(), "max_position_embeddings", None)
    return limit if isinstance(limit, int) and limit > 0 else None


def readable_tokens(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> tuple[Token, ...]:
    """Say what each token stands for, without the text it came from.

    Where a vocabulary does not spell spaces (word pieces), every word but the first is given one, which is
    wrong before punctuation; `read_text` knows better.

    Args:
        tokenizer: the one that the ids belong to.
        ids: token ids.

    Returns:
        One `Token` for each id.

    Raises:
        ArgumentError: an id is not in the vocabulary.

    """
    spelling = spelling_of(tokenizer)
    special = set(tokenizer.all_special_ids)
    added = tokenizer.added_tokens_decoder
    tokens: list[Token] = []
    # Whether the next entry begins a word after another one, so that a space lies between them.
    after_word = False
    for number in map(int, ids):
        entry = tokenizer.convert_ids_to_tokens(number) if 0 <= number < _NO_ID else None
        if not isinstance(entry, str):
            raise ArgumentError(f"token id {number} is not in the vocabulary of {len(tokenizer)} tokens")
        if number in special or (number in added and added[number].special):
            tokens.append(Token(number, entry, "special"))
            continue
        if number in added:
            # An added token is matched in the text as it stands; it is not spelled.
            tokens.append(Token(number, entry, "text"))
            after_word = True
            continue
        raw = spelling.raw(entry)
        if after_word and _starts_word(spelling, entry):
            raw = b" " + raw
        elif not after_word and spelling.added_space:
            raw = raw.removeprefix(b" ")
        tokens.append(_show(number, raw))
        after_word = not spelling.word_end or entry.endswith(spelling.word_end)
    return tuple(tokens)


def _starts_word(spelling: Spelling, entry: str) -> bool:
    if spelling.continuation:
        return not entry.startswith(spelling.continuation)
    return bool(spelling.word_end)


def _as_typed(tokens: Sequence[Token], places: Sequence[tuple[int, int]], text: str) -> tuple[Token, ...]:
    """Replace each token's text by its slice of the original, unless it shares a character with another."""
    claims = Counter(place for begin, end in places for place in range(begin, end))
    found: list[Token] = []
    done = 0
    for token, (begin, end) in zip(tokens, places, strict=True):
        typed = text[begin:end]
        if token.kind == "text" and typed:
            # Whitespace before a token belongs to it; other characters there were dropped by the tokenizer.
            gap = text[done:begin]
            space = gap[len(gap.rstrip()) :]
            if any(claims[place] > 1 for place in range(begin, end)):
                # One character in several tokens, as of a syllable block: each says what it holds itself.
                typed = token.text.lstrip()
            found.append(Token(token.id, space + typed, "text"))
        else:
            found.append(token)
        done = max(done, end)
    return tuple(found)


def _show(number: int, raw: bytes) -> Token:
    """Make a token of the bytes it stands for; bytes that are no whole character are shown as numbers."""
    try:
        return Token(number, raw.decode("utf-8"), "text")
    except UnicodeDecodeError:
        pass
    shown, broken = "", b""
    while raw:
        length = next((n for n in range(1, 5) if _is_character(raw[:n])), 0)
        if length:
            shown += _numbers(broken) + raw[:length].decode("utf-8")
            broken = b""
        else:
            broken += raw[:1]
        raw = raw[length or 1 :]
    return Token(number, shown + _numbers(broken), "bytes")


def _is_character(raw: bytes) -> bool:
    try:
        return len(raw.decode("utf-8")) == 1
    except UnicodeDecodeError:
        return False


def _numbers(broken: bytes) -> str:
    return f"⟨{broken.hex(' ').upper()}⟩" if broken else ""
