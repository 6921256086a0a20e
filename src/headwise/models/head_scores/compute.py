"""Scoring every head of a model on repeated random tokens."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headwise.counts import checked_size
from headwise.errors import UnsupportedError
from headwise.evidence import Collect, Evidence
from headwise.models.attachment import AttachedLayer, attach
from headwise.models.head_scores.random_tokens import repeated_random_tokens
from headwise.models.head_scores.result import SINK_ROWS, HeadScore, HeadScores
from headwise.models.opening.opened_model import OpenedModel
from headwise.models.quiet import quiet_libraries


def head_scores(opened: OpenedModel, *, num_tokens: int = 64, batch: int = 4, seed: int = 0) -> HeadScores:
    """Return how much each head of a model looks at the previous token, repeats a pattern, or rests.

    One forward over `batch` texts of `num_tokens` different random tokens, each text repeated once. The
    weights are not kept: memory grows with the length of the text, not with its square. A weight that a mask
    or window hides counts as 0. `docs/scores.md` has the definitions and what they do not say.

    Args:
        opened: a decoder or an encoder that reads text, not attached.
        num_tokens: how many random tokens to draw for a text, at least 2; at 64 and more, heads that look
            everywhere alike score under 0.05.
        batch: how many texts to take the mean over.
        seed: of the draw.

    Returns:
        The scores by layer and head.

    Raises:
        ArgumentError: a number is none that can be, or the text is too long for the model.
        UnsupportedError: the model reads no text, is an encoder-decoder, or cannot be recorded.

    Example:
        >>> from headwise import open_model
        >>> scores = head_scores(open_model("toy-induction"))
        >>> best = scores.strongest("induction", count=1)[0]
        >>> best.layer, best.head, round(best.induction, 3)
        (1, 2, 1.0)

    Source:
        Olsson et al., "In-context Learning and Induction Heads" (2022); Gu et al., "When Attention Sink
        Emerges in Language Models" (2024), section 3.

    """
    num_tokens = checked_size("num_tokens", num_tokens, at_least=2)
    batch, seed = checked_size("batch", batch), checked_size("seed", seed, at_least=0)
    if opened.model.config.is_encoder_decoder:
        raise UnsupportedError(
            f"{opened.name} is an encoder-decoder, and the scores are of one text through a decoder or an "
            "encoder; use attach() to record an encoder-decoder"
        )
    ids, start = repeated_random_tokens(opened, num_tokens=num_tokens, batch=batch, seed=seed)
    collect = Collect(offsets=[num_tokens - 1, num_tokens])
    with quiet_libraries(), attach(opened.model, collect=collect) as watched:
        _run(opened.model, ids)
        found = [(layer, watched.evidence[layer]) for layer in watched.layers]
    second_half = slice(start + num_tokens, start + 2 * num_tokens)
    return HeadScores(
        model=opened.name,
        num_tokens=num_tokens,
        batch=batch,
        seed=seed,
        seq_len=ids.shape[1],
        sink_rows=min(SINK_ROWS, ids.shape[1]),
        heads=tuple(score for layer, evidence in found for score in _scores(layer, evidence, second_half)),
    )


def _run(model: PreTrainedModel, ids: Tensor) -> None:
    # Nobody reads the logits, and those of all tokens would be the largest tensor of all.
    spared = {"logits_to_keep": 1, "use_cache": False}
    accepted = inspect.signature(model.forward).parameters
    ids = ids.to(model.device)
    with torch.inference_mode():
        model(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            **{name: value for name, value in spared.items() if name in accepted},
        )


def _scores(layer: AttachedLayer, evidence: Evidence[Tensor], second_half: slice) -> Iterator[HeadScore]:
    at_offsets = evidence.at_offsets
    if at_offsets is None:  # it was asked for
        raise ValueError("this evidence was not collected")
    # The first token has no token before it.
    previous_token = _means(evidence.previous_token[:, :, 1:])
    induction, duplicate_token = (_means(at_offsets[:, :, second_half, place]) for place in (0, 1))
    sink = _means(evidence.first_token[:, :, :SINK_ROWS])
    columns = zip(previous_token, induction, duplicate_token, sink, strict=True)
    for head, scores in enumerate(columns):
        yield HeadScore(layer.layer, head, head // layer.group_size, *scores)


def _means(weights: Tensor) -> list[float]:
    """Return the mean over batch and rows of `[batch, num_heads, rows]`; what a row does not see is 0."""
    return [float(mean) for mean in weights.double().nan_to_num(0.0).mean(dim=(0, 2))]
