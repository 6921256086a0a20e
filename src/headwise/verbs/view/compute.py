"""Run a model on a text and record what every head did."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headwise.errors import ArgumentError, UnsupportedError
from headwise.evidence import STATISTICS, Collect, Evidence
from headwise.models.attachment import AttachedLayer, LayerKey, attach
from headwise.models.opening.opened_model import OpenedModel, open_model
from headwise.models.quiet import quiet_libraries
from headwise.models.tokens import read_text, readable_tokens
from headwise.verbs.terminal import several
from headwise.verbs.view.result import HeadSummary, LayerMaps, ModelFacts, NextToken, View

THUMBNAIL_SIZE = 64
TOP_K = 8
NEXT_TOKENS = 5
FULL_WEIGHTS_TOKENS = 256
"""Up to this many tokens the weights of every layer are kept; beyond it, those of the layer asked for."""
CACHE_ELEMENT_BYTES = 2


def view(
    model: str | Path | OpenedModel,
    text: str,
    *,
    layer: int | None = None,
    notify: Callable[[str], None] | None = None,
) -> View:
    """Return what every head of `model` does on `text`.

    Args:
        model: a catalogue name, a folder, a `.safetensors` or `.gguf` file, a hub id, or an opened model.
        text: what the model reads; at most as many tokens as the model has positions.
        layer: a layer to look at closely: its weights are kept whole whatever the length of the text.
        notify: called with a line of text before each step that can take long.

    Raises:
        ArgumentError: the text is empty or too long, or the layer does not exist.
        ModelError: the model cannot be opened.
        UnsupportedError: the model's attention cannot be recorded.

    Example:
        >>> found = view("minilm-l6", "The bank raised rates")
        >>> found.facts.layers, len(found.heads)
        (6, 72)

    """
    opened = model if isinstance(model, OpenedModel) else open_model(model, notify=notify)
    _refuse_unsuited(opened)
    ids, tokens = read_text(opened, text)
    if notify is not None:
        notify(f"running {opened.name} on {several(len(ids), 'token')}")
    # What libraries log on the way is no news to whoever looks at heads.
    with quiet_libraries(), attach(opened.model) as heads:
        attached = _by_number(heads.layers, opened.name)
        _check_layer(layer, attached, opened.name)
        heads.collect = _what_to_collect(len(ids), layer, heads.layers)
        outputs = _run(opened.model, ids)
        recorded = [(attached[number], heads.evidence[number]) for number in sorted(attached)]
        maps = tuple(_layer_maps(place, evidence) for place, evidence in recorded)
        summaries = tuple(head for place, evidence in recorded for head in _summaries(place, evidence))
        difference = heads.max_logit_difference
        facts = _facts(opened, attached, outputs)
    return View(
        facts=facts,
        text=text,
        tokens=tokens,
        next_tokens=_next_tokens(opened, outputs),
        heads=summaries,
        layers=maps,
        max_logit_difference=difference,
        focus_layer=layer,
    )


def _refuse_unsuited(opened: OpenedModel) -> None:
    if opened.tokenizer is None:
        raise UnsupportedError(
            f"{opened.name} reads no text (its input is {opened.model.main_input_name}), and view reads one "
            "text; use attach() to record it from Python"
        )
    if opened.model.config.is_encoder_decoder:
        raise UnsupportedError(
            f"{opened.name} is an encoder-decoder, and view reads one text through a decoder or an encoder; "
            "use attach() to record an encoder-decoder from Python"
        )


def _by_number(places: Sequence[AttachedLayer], name: str) -> dict[int, AttachedLayer]:
    attached: dict[int, AttachedLayer] = {}
    for place in places:
        other = attached.setdefault(place.layer, place)
        if other is not place:
            raise UnsupportedError(
                f"{name} has several stacks of layers ({other.name} and {place.name} are both layer "
                f"{place.layer}), and view reads one text through one stack; use attach() to record it from "
                "Python"
            )
    return attached


def _check_layer(layer: int | None, attached: Mapping[int, AttachedLayer], name: str) -> None:
    if layer is not None and layer not in attached:
        last = max(attached)
        gaps = "" if len(attached) == last + 1 else f" ({len(attached)} of them have attention heads)"
        raise ArgumentError(f"layer={layer} does not exist; {name} has layers 0 to {last}{gaps}")


def _what_to_collect(
    seq_len: int, focus_layer: int | None, places: Sequence[AttachedLayer]
) -> dict[LayerKey, Collect]:
    return {
        place: Collect(
            weights=seq_len <= FULL_WEIGHTS_TOKENS or place.layer == focus_layer,
            map_size=min(THUMBNAIL_SIZE, seq_len),
            top_k=min(TOP_K, seq_len),
        )
        for place in places
    }


def _run(model: torch.nn.Module, ids: Sequence[int]) -> Any:
    batch = torch.tensor([list(ids)])
    with torch.inference_mode():
        return model(input_ids=batch, attention_mask=torch.ones_like(batch))


def _layer_maps(place: AttachedLayer, evidence: Evidence[torch.Tensor]) -> LayerMaps:
    return LayerMaps(
        layer=place.layer,
        num_heads=place.num_heads,
        num_kv_heads=place.num_kv_heads,
        thumbnails=_first(evidence.map),
        top_weights=_first(evidence.top_weights),
        top_keys=_first(evidence.top_keys),
        rows={statistic.name: _first(getattr(evidence, statistic.name)) for statistic in STATISTICS},
        weights=None if evidence.weights is None else _first(evidence.weights),
        sink=None if evidence.sink is None else _first(evidence.sink),
    )


def _first(recorded: torch.Tensor | None) -> Any:
    """Return the only batch element as an array, floating point as float32."""
    if recorded is None:  # what view asks for is always collected
        raise ValueError("this evidence was not collected")
    one = recorded[0]
    return (one.float() if one.is_floating_point() else one).numpy()


def _summaries(place: AttachedLayer, evidence: Evidence[torch.Tensor]) -> Iterator[HeadSummary]:
    group_size, means = place.num_heads // place.num_kv_heads, evidence.per_head()
    for head in range(place.num_heads):
        numbers = {statistic.name: _known(means[statistic.name][head]) for statistic in STATISTICS}
        yield HeadSummary(layer=place.layer, head=head, kv_head=head // group_size, **numbers)


def _known(mean: np.float64) -> float | None:
    return None if np.isnan(mean) else float(mean)


def _facts(opened: OpenedModel, attached: Mapping[int, AttachedLayer], outputs: Any) -> ModelFacts:
    places = attached.values()
    return ModelFacts(
        name=opened.name,
        family=opened.model.config.model_type,
        layers=opened.model.config.get_text_config().num_hidden_layers,
        num_heads=max(place.num_heads for place in places),
        num_kv_heads=max(place.num_kv_heads for place in places),
        head_dim=max(place.head_dim for place in places),
        kv_bytes_per_token=_cache_elements_per_token(outputs) * CACHE_ELEMENT_BYTES,
        causal=opened.model.can_generate(),
    )


def _cache_elements_per_token(outputs: Any) -> int:
    """Return how many numbers the model's own cache keeps for one more token, read off the cache it made."""
    # The cache was called past_key_values, and still answers to it with a warning.
    cache = outputs.get("cache" if "cache" in outputs else "past_key_values")
    tensors = [
        tensor
        for layer in getattr(cache, "layers", ())
        for tensor in (getattr(layer, "keys", None), getattr(layer, "values", None))
        if torch.is_tensor(tensor) and tensor.ndim == 4
    ]
    return sum(tensor.shape[1] * tensor.shape[3] for tensor in tensors)


def _next_tokens(opened: OpenedModel, outputs: Any) -> tuple[NextToken, ...]:
    if not opened.model.can_generate() or opened.tokenizer is None:
        return ()
    probabilities = outputs.logits[0, -1].double().softmax(dim=-1)
    likeliest = probabilities.topk(NEXT_TOKENS)
    tokens = readable_tokens(opened.tokenizer, likeliest.indices.tolist())
    return tuple(
        NextToken(token.text, probability)
        for token, probability in zip(tokens, likeliest.values.tolist(), strict=True)
    )
