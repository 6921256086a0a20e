"""Random tokens, twice: text in which the only thing to go by is that the second half repeats the first."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from headwise.errors import ArgumentError, UnsupportedError
from headwise.models.opening.opened_model import OpenedModel
from headwise.models.tokens import max_positions
from headwise.models.tokens.encoding import encode


def repeated_random_tokens(
    opened: OpenedModel, *, num_tokens: int, batch: int, seed: int
) -> tuple[Tensor, int]:
    """Return texts of `num_tokens` different random tokens followed by the same tokens again.

    No special token is drawn, and none is drawn twice in one text: else a token would have several first
    occurrences, and no head could see the right one. Around the text stand the special tokens that the
    tokenizer puts there, such as the one that begins a text.

    Args:
        opened: a model that reads text.
        num_tokens: how many tokens to draw, at least 2.
        batch: how many texts.
        seed: of the draw; the same seed gives the same tokens.

    Returns:
        The token ids, int64, `[batch, seq_len]`, and at which place the first random token stands.

    Raises:
        UnsupportedError: the model reads no text.
        ArgumentError: the vocabulary has too few tokens, or the model too few positions.

    Example:
        >>> from headwise import open_model
        >>> ids, start = repeated_random_tokens(open_model("toy-induction"), num_tokens=3, batch=1, seed=0)
        >>> ids.shape, start, bool((ids[:, 1:4] == ids[:, 4:]).all())
        (torch.Size([1, 7]), 1, True)

    """
    if opened.tokenizer is None:
        raise UnsupportedError(
            f"{opened.name} reads no text (its input is {opened.model.main_input_name}), and the scores are "
            "of text"
        )
    drawable = _plain_tokens(opened, opened.tokenizer)
    if num_tokens > len(drawable):
        raise ArgumentError(
            f"num_tokens={num_tokens} different tokens cannot be drawn: {opened.name} has {len(drawable)} "
            "that are not special; use fewer"
        )
    before, after = _special_tokens_around(opened.tokenizer)
    seq_len, limit = len(before) + 2 * num_tokens + len(after), max_positions(opened)
    if limit is not None and seq_len > limit:
        raise ArgumentError(
            f"num_tokens={num_tokens} makes texts of {seq_len} tokens, and {opened.name} has positions for "
            f"{limit}; use at most {(limit - len(before) - len(after)) // 2}"
        )
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(batch):
        drawn = drawable[torch.randperm(len(drawable), generator=generator)[:num_tokens]]
        rows.append(torch.cat([before, drawn, drawn, after]))
    return torch.stack(rows), len(before)


def _plain_tokens(opened: OpenedModel, tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """Return the tokens that both tokenizer and model know and that stand for text."""
    special = set(tokenizer.all_special_ids)
    special |= {number for number, added in tokenizer.added_tokens_decoder.items() if added.special}
    known = min(len(tokenizer), opened.model.config.get_text_config().vocab_size)
    return torch.tensor([number for number in range(known) if number not in special], dtype=torch.int64)


def _special_tokens_around(tokenizer: PreTrainedTokenizerBase) -> tuple[Tensor, Tensor]:
    """Return what the tokenizer puts before and after every text."""
    ids, special = encode(tokenizer, "a")[0], set(tokenizer.all_special_ids)
    plain = [place for place, number in enumerate(ids) if number not in special]
    # A vocabulary without "a" may make one unknown token of it, which is special too.
    first, last = (plain[0], plain[-1]) if plain else (0, len(ids) - 1)
    return torch.tensor(ids[:first], dtype=torch.int64), torch.tensor(ids[last + 1 :], dtype=torch.int64)
