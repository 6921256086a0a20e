"""Run a model once on a text, and trace one head of one layer from the text to the next token."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from headwise.counts import checked_size
from headwise.errors import UnsupportedError
from headwise.models.attachment import AttachedLayer, attach
from headwise.models.attachment.layer_call import LayerCall
from headwise.models.given_text import check_text
from headwise.models.opening.opened_model import OpenedModel, open_model
from headwise.models.quiet import quiet_libraries
from headwise.models.tokens import Token, read_text, readable_tokens
from headwise.verbs.explain_model.asked import check_head, checked_position, found_layer
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
    opened = model if isinstance(model, OpenedModel) else open_model(model, notify=notify)
    if opened.model.config.is_encoder_decoder:
        raise UnsupportedError(
            f"{opened.name} is an encoder-decoder, and explain traces models of one stack; use view to see "
            "its heads"
        )
    ids, tokens = read_text(opened, text)
    position = checked_position(query, tokens)
    if notify is not None:
        notify(f"running {opened.name} on {len(tokens)} tokens")
    run = _run(opened, ids, layer=layer, head=head, position=position)
    return _trace(opened, run, text=text, tokens=tokens, head=head, position=position)


class _Run(NamedTuple):
    """What one run of an attached model leaves.

    - place, traced, call: the layer that is traced, and its call, of which everything is kept
    - heard: the calls of all `layers`, in their order
    """

    layers: tuple[AttachedLayer, ...]
    place: AttachedLayer
    traced: HeardCall
    call: LayerCall
    heard: Sequence[HeardCall]
    stream: Stream
    outputs: Any
    max_logit_difference: float


def _run(opened: OpenedModel, ids: Sequence[int], *, layer: int, head: int, position: int) -> _Run:
    with quiet_libraries(), attach(opened.model) as attached:
        layers = attached.layers
        place = found_layer(layer, layers, opened.name)
        check_head(head, place)
        with (
            listening(opened.model, layers, whole=place, position=position) as heard,
            watching_stream(opened.model, layers, position) as stream,
        ):
            outputs = _outputs(opened.model, ids, position)
        difference = attached.max_logit_difference
    traced = heard[layers.index(place)]
    if traced.projection is None or traced.call is None:
        raise UnsupportedError(
            f"the output projection of layer {layer} ({place.name}) of {opened.name} was not found: no "
            "linear layer reads the outputs of its heads as they are (the model may gate or norm them "
            "first); use attach() to record the heads from Python"
        )
    return _Run(layers, place, traced, traced.call, heard, stream, outputs, difference)


def _outputs(model: nn.Module, ids: Sequence[int], position: int) -> Any:
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


def _trace(
    opened: OpenedModel, run: _Run, *, text: str, tokens: tuple[Token, ...], head: int, position: int
) -> ModelTrace:
    place, call = run.place, run.call
    kv_head = head // place.group_size
    following = _next_tokens(opened, run.outputs, position)
    logit, reason = _logit(opened, run, following=following, position=position)
    return ModelTrace(
        model=opened.name,
        family=opened.model.config.model_type,
        text=text,
        tokens=tokens,
        position=position,
        layer=place.layer,
        layer_name=place.name,
        num_layers=len(run.layers),
        head=head,
        kv_head=kv_head,
        num_heads=place.num_heads,
        num_kv_heads=place.num_kv_heads,
        query=doubles(call.query[0, head]),
        key=doubles(call.key[0, kv_head]),
        value=doubles(call.value[0, kv_head]),
        row=head_row(run.traced, head=head, kv_head=kv_head, position=position),
        projection=run.traced.projection_name,
        **added_by_heads(run.traced, position=position)._asdict(),
        next_tokens=following,
        logit=logit,
        no_logit=reason,
        max_logit_difference=run.max_logit_difference,
    )


def _logit(
    opened: OpenedModel, run: _Run, *, following: Sequence[NextToken], position: int
) -> tuple[LogitParts | None, str | None]:
    """Return the likeliest next token's logit taken apart, or why not."""
    if not following:
        return None, (
            f"{opened.name} is an encoder: it predicts no next token, so that there is no logit to take apart"
        )
    try:
        parts = take_apart(
            opened.model, run.layers, run.heard, run.stream, chosen=following[0].id, position=position
        )
    except NotASum as reason:
        return None, f"the logit of {opened.name} cannot be taken apart: {reason}"
    return parts, None


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
