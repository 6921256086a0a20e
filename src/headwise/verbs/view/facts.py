"""What a view says of the model itself: its sizes, its cache, and what it would write next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from headwise.models.attachment import AttachedLayer
from headwise.models.opening.opened_model import OpenedModel
from headwise.models.tokens import readable_tokens
from headwise.verbs.view.result import ModelFacts, NextToken, Part

NEXT_TOKENS = 5
CACHE_ELEMENT_BYTES = 2


def model_facts(
    opened: OpenedModel, places: Mapping[int, AttachedLayer], part: Part | None, outputs: Any
) -> ModelFacts:
    """Return the facts of the layers that are shown."""
    found = places.values()
    config = opened.model.config
    # Of an encoder-decoder the config's number may be the other half's.
    described = None if part else getattr(config.get_text_config(), "num_hidden_layers", None)
    return ModelFacts(
        name=opened.name,
        family=config.model_type,
        layers=described if isinstance(described, int) else len(places),
        num_heads=max(place.num_heads for place in found),
        num_kv_heads=max(place.num_kv_heads for place in found),
        head_dim=max(place.head_dim for place in found),
        kv_bytes_per_token=_cache_elements_per_token(outputs, part) * CACHE_ELEMENT_BYTES,
        causal=opened.model.can_generate() if part is None else part == "decoder",
    )


def next_tokens(opened: OpenedModel, outputs: Any) -> tuple[NextToken, ...]:
    """Return the likeliest next tokens of a model that writes text."""
    if not opened.model.can_generate() or opened.tokenizer is None:
        return ()
    # A model may know more numbers than its tokenizer has tokens, to make its vocabulary a round number.
    probabilities = outputs.logits[0, -1].double().softmax(dim=-1)[: len(opened.tokenizer)]
    likeliest = probabilities.topk(min(NEXT_TOKENS, len(probabilities)))
    tokens = readable_tokens(opened.tokenizer, likeliest.indices.tolist())
    return tuple(
        NextToken(token.text, probability)
        for token, probability in zip(tokens, likeliest.values.tolist(), strict=True)
    )


def _cache_elements_per_token(outputs: Any, part: Part | None) -> int:
    """Return how many numbers the model's own cache keeps for one more token, read off the cache it made.

    Of an encoder-decoder: for one more token that is written, or in cross attention one more that is read.
    """
    if part == "encoder":  # what it reads is kept by the layers that look at it
        return 0
    # The cache was called past_key_values, and still answers to it with a warning.
    cache = outputs.get("cache" if "cache" in outputs else "past_key_values")
    if part is not None:
        cache = getattr(cache, "cross_attention_cache" if part == "cross" else "self_attention_cache", None)
    tensors = [
        tensor
        for layer in getattr(cache, "layers", ())
        for tensor in (getattr(layer, "keys", None), getattr(layer, "values", None))
        if torch.is_tensor(tensor) and tensor.ndim == 4
    ]
    return sum(tensor.shape[1] * tensor.shape[3] for tensor in tensors)
