"""The scores once more, read off the full weights of a model's own eager attention."""

from __future__ import annotations

from contextlib import contextmanager

import torch
from torch import Tensor

from headwise.models.head_scores.random_tokens import repeated_random_tokens
from headwise.models.opening.opened_model import OpenedModel


@contextmanager
def eager(model):
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def eager_scores(opened: OpenedModel, *, num_tokens: int, batch: int, seed: int) -> dict[str, Tensor]:
    """Return each score, float64 `[layers, heads]`."""
    ids, start = repeated_random_tokens(opened, num_tokens=num_tokens, batch=batch, seed=seed)
    with eager(opened.model), torch.inference_mode():
        attentions = opened.model(ids, output_attentions=True).attentions
    # [layers, batch, heads, seq_len, kv_len] -> [layers, heads, seq_len, kv_len]
    weights = torch.stack(attentions).double().mean(dim=1)
    half = range(start + num_tokens, start + 2 * num_tokens)
    return {
        "previous_token": _mean(weights, [(row, row - 1) for row in range(1, ids.shape[1])]),
        "induction": _mean(weights, [(row, row - num_tokens + 1) for row in half]),
        "duplicate_token": _mean(weights, [(row, row - num_tokens) for row in half]),
        "sink": _mean(weights, [(row, 0) for row in range(min(64, ids.shape[1]))]),
    }


def _mean(weights: Tensor, places: list[tuple[int, int]]) -> Tensor:
    return torch.stack([weights[:, :, row, key] for row, key in places]).mean(dim=0)
