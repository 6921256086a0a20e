"""Run a model once on a text, and trace one head of one layer from the text to the next token."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headwise.counts import checked_size
from headwise.errors import ArgumentError, UnsupportedError
from headwise.models.attachment import AttachedLayer, attach
from headwise.models.given_text import check_text
from headwise.models.opening.opened_model import OpenedModel, open_model
from headwise.models.quiet import quiet_libraries
from headwise.models.tokens import Token, read_text, readable_tokens
from headwise.verbs.explain_model.listening import HeardCall, listening
from headwise.verbs.explain_model.logit import NotASum, take_apart
from headwise.verbs.explain_model.one_head import added_by_heads, doubles, head_row
from headwise.verbs.explain_model.result import LogitParts, ModelTrace, NextToken
from headwise.verbs.explain_model.stream import Stream, watching_stream

NEXT_TOKENS = 5


def explain_model(
    model: str | Path | OpenedModel,
    text: str,
    *,
    layer: int,
    head: int,
    query: int | None = None,
    notify: Callable[[str], None] | None = None,
) -> ModelTrace:
    """Return how one head of a model arrives at its numbers on a text, and what it does to the next token.

    The model runs once. Queries, keys and values are those that its attention call gets, rotary positions
    included. A head's direct contribution to a logit leaves out what later layers make of it.

    Args:
        model: a catalogue name, a folder, a `.safetensors` or `.gguf` file, a hub id, or an opened model.
        text: what the model reads.
        layer: the attention layer's number.
        head: the query head.
        query: the token that looks, from 0 or with negative numbers from the end; the last one by default.
        notify: called with a line of text before each step that can take long.

    Raises:
        ArgumentError: the text is empty or too long, or the layer, head or query does not exist.
        ModelError: the model cannot be opened.
        UnsupportedError: it is an encoder-decoder or reads no text, its attention cannot be recorded, or the
            layer's output projection was not found.

    Example:
        >>> found = explain_model("minilm-l6", "The bank raised rates", layer=2, head=5)
        >>> found.added.shape, found.sum_difference < 1e-5
        ((12, 384), True)

    """
    check_text(text)
    layer, head = checked_size("layer", layer, at_least=0), checked_size("head", head, at_least=0)
    say = notify or _say_nothing
    opened = model if isinstance(model, OpenedModel) else open_model(model, notify=notify)
    if opened.model.config.is_encoder_decoder:
        raise UnsupportedError(
            f"{opened.name} is an encoder-decoder, and explain traces models of one stack; use view to see "
            "its heads"
        )
    ids, tokens = read_text(opened, text)
    position = _checked_position(query, tokens)
    say(f"running {opened.name} on {len(tokens)} tokens")
    with quiet_libraries(), attach(opened.model) as attached:
        place = _find_layer(layer, attached.layers, opened)
        _check_head(head, place)
        with (
            listening(opened.model, attached.layers, whole=place, position=position) as heard,
            watching_stream(opened.model, attached.layers, position) as stream,
        ):
            outputs = _run(opened.model, ids, position)
        difference = attached.max_logit_difference
    heard_call = heard[attached.layers.index(place)]
    call = heard_call.call
    if heard_call.projection is None or call is None:
        raise UnsupportedError(
            f"the output projection of layer {layer} ({place.name}) of {opened.name} was not found: no "
            "linear layer reads the outputs of its heads as they are (the model may gate or norm them "
            "first); use attach() to record the heads from Python"
        )
    following = _next_tokens(opened, outputs, position)
    logit, reason = _logit(opened, attached.layers, heard, stream, following=following, position=position)
    kv_head = head // place.group_size
    added = added_by_heads(heard_call, position=position)
    return ModelTrace(
        model=opened.name,
        family=opened.model.config.model_type,
        text=text,
        tokens=tokens,
        position=position,
        layer=layer,
        layer_name=place.name,
        num_layers=len(attached.layers),
        head=head,
        kv_head=kv_head,
        num_heads=place.num_heads,
        num_kv_heads=place.num_kv_heads,
        query=doubles(call.query[0, head]),
        key=doubles(call.key[0, kv_head]),
        value=doubles(call.value[0, kv_head]),
        row=head_row(heard_call, head=head, kv_head=kv_head, position=position),
        projection=heard_call.projection_name,
        **added._asdict(),
        next_tokens=following,
        logit=logit,
        no_logit=reason,
        max_logit_difference=difference,
    )


def _say_nothing(line: str) -> None:
    """Stand in for whoever is not there to be told."""


def _run(model: nn.Module, ids: Sequence[int], position: int) -> Any:
    batch = torch.tensor([list(ids)])
    accepted = inspect.signature(model.forward).parameters
    # The logits of all tokens are the largest tensor of all, and those of one are read.
    spared = {"logits_to_keep": torch.tensor([position]), "use_cache": False}
    with torch.inference_mode():
        return model(
            input_ids=batch,
            attention_mask=torch.ones_like(batch),
            **{name: value for name, value in spared.items() if name in accepted},
        )


def _logit(
    opened: OpenedModel,
    layers: tuple[AttachedLayer, ...],
    heard: Sequence[HeardCall],
    stream: Stream,
    *,
    following: Sequence[NextToken],
    position: int,
) -> tuple[LogitParts | None, str | None]:
    """Return the likeliest next token's logit taken apart, or why not."""
    if not following:
        return None, (
            f"{opened.name} is an encoder: it predicts no next token, so that there is no logit to take apart"
        )
    try:
        chosen = following[0].id
        return take_apart(opened.model, layers, heard, stream, chosen=chosen, position=position), None
    except NotASum as reason:
        return None, f"the logit of {opened.name} cannot be taken apart: {reason}"


def _next_tokens(opened: OpenedModel, outputs: Any, position: int) -> tuple[NextToken, ...]:
    """Return the likeliest tokens after a position; none of a model that writes none."""
    tokenizer = opened.tokenizer
    if not opened.model.can_generate() or tokenizer is None:
        return ()
    rows = outputs.logits[0]
    logits = rows[0 if len(rows) == 1 else position]
    # A model may know more numbers than its tokenizer has tokens, to make its vocabulary a round number.
    known = min(len(logits), len(tokenizer))
    probabilities = logits.double().softmax(dim=-1)[:known]
    likeliest = probabilities.topk(min(NEXT_TOKENS, known))
    ids = likeliest.indices.tolist()
    names = (token.text for token in readable_tokens(tokenizer, ids))
    return tuple(
        NextToken(one, name, float(logits[one]), probability)
        for one, name, probability in zip(ids, names, likeliest.values.tolist(), strict=True)
    )


def _checked_position(query: int | None, tokens: Sequence[Token]) -> int:
    count = len(tokens)
    position = count - 1 if query is None else query
    if isinstance(position, bool) or not isinstance(position, int) or not -count <= position < count:
        raise ArgumentError(
            f"query={query} does not exist; the text has {count} tokens: give 0 to {count - 1}, or -{count} "
            "to -1 from the end"
        )
    return position % count


def _find_layer(layer: int, layers: Sequence[AttachedLayer], opened: OpenedModel) -> AttachedLayer:
    found = [place for place in layers if place.layer == layer]
    if len(found) > 1:
        raise UnsupportedError(
            f"{opened.name} has {len(found)} layers with the number {layer}, and explain traces models of "
            "one stack; use attach() to record them from Python"
        )
    if not found:
        numbers = sorted({place.layer for place in layers})
        there_is = f"0 to {numbers[-1]}" if len(numbers) == numbers[-1] + 1 else ", ".join(map(str, numbers))
        raise ArgumentError(
            f"layer={layer} does not exist; the attention layers of {opened.name} are {there_is}"
        )
    return found[0]


def _check_head(head: int, place: AttachedLayer) -> None:
    if head >= place.num_heads:
        raise ArgumentError(
            f"head={head} does not exist in layer {place.layer}, which has {place.num_heads} query heads; "
            f"give 0 to {place.num_heads - 1}"
        )
