"""Run a model on what it reads and record what every head did."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headwise.errors import UnsupportedError
from headwise.evidence import Collect, Evidence
from headwise.models.attachment import AttachedLayer, attach
from headwise.models.head_scores import HeadScores, head_scores
from headwise.models.opening.opened_model import OpenedModel, open_model
from headwise.models.quiet import quiet_libraries
from headwise.models.tokens import Token
from headwise.verbs.view.facts import model_facts, next_tokens
from headwise.verbs.view.given import Given, read_given, tower_for
from headwise.verbs.view.image import Grid, patch_tokens
from headwise.verbs.view.parts import check_layer, check_part, layers_of
from headwise.verbs.view.recorded import layer_maps, summaries, what_to_collect
from headwise.verbs.view.result import Part, View

Notify = Callable[[str], None]
QUIET_SECONDS = 2.0
"""Within so long of the last line of progress no further layer is reported."""


def view(
    model: str | Path | OpenedModel,
    text: str | None = None,
    *,
    image: Path | None = None,
    decoder_text: str | None = None,
    part: Part | None = None,
    layer: int | None = None,
    rows: Sequence[int] = (),
    scores: bool = False,
    notify: Notify | None = None,
) -> View:
    """Return what every head of `model` does on a text or an image.

    Of an encoder-decoder one part is shown, cross attention unless another is asked for. Memory grows with
    the length of the text, not with its square, but for the one layer that is looked at closely.

    Args:
        model: a catalogue name, a folder, a `.safetensors` or `.gguf` file, a hub id, or an opened model.
        text: what the model reads; at most as many tokens as the model has positions.
        image: the file that a vision model reads, in place of a text; needs Pillow.
        decoder_text: what the decoder of an encoder-decoder is given; by default what it writes itself, up
            to 32 tokens of the greatest probability each.
        part: of an encoder-decoder `"encoder"`, `"decoder"` or `"cross"`.
        layer: a layer to look at closely: its weights are kept whole as long as they fit into 256 MB, beyond
            that its map has 256 cells a side.
        rows: tokens, counted from 0 or with negative numbers from the end, whose weights are wanted exactly
            in every layer.
        scores: also score every head on random tokens, by `head_scores`.
        notify: called with a line of text before each step that can take long, and during it.

    Raises:
        ArgumentError: the text is empty or too long, the image cannot be read, or the layer, a row or the
            part does not exist.
        ModelError: the model cannot be opened.
        UnsupportedError: the model's attention cannot be recorded.

    Example:
        >>> found = view("minilm-l6", "The bank raised rates")
        >>> found.facts.layers, len(found.heads)
        (6, 72)

    """
    say = notify or _say_nothing
    opened = model if isinstance(model, OpenedModel) else open_model(model, notify=notify)
    opened = tower_for(opened, image=image is not None)
    part = check_part(opened, part)
    given = read_given(opened, text=text, image=image, decoder_text=decoder_text, notify=say)
    given.check_rows(rows, part)
    # Before the model is attached here, for that attaches it too.
    scored = _scored(opened, say) if scores else None
    say(f"running {opened.name} on {given.size}")
    # What libraries log on the way is no news to whoever looks at heads.
    with quiet_libraries(), attach(opened.model, probe=given.probe) as heads:
        places = layers_of(opened, heads.layers, part)
        check_layer(layer, places, opened)
        seq_len, kv_len = given.lengths(part)
        heads.collect = what_to_collect(places, seq_len=seq_len, kv_len=kv_len, focus_layer=layer, rows=rows)
        with _counting_layers(opened, heads.layers, say):
            outputs = _run(opened.model, given)
        recorded = [(place, heads.evidence[place]) for place in places.values()]
        facts = model_facts(opened, places, part, outputs)
    tokens, key_tokens, grid = _tokens(given, part, recorded[0][1], outputs)
    _check_lengths(opened, recorded, len(tokens))
    return View(
        facts=facts,
        text=given.text,
        tokens=tokens,
        next_tokens=next_tokens(opened, outputs),
        heads=tuple(head for place, evidence in recorded for head in summaries(place, evidence)),
        layers=tuple(layer_maps(place, evidence, rows) for place, evidence in recorded),
        max_logit_difference=heads.max_logit_difference,
        focus_layer=layer,
        key_tokens=key_tokens,
        image_grid=grid,
        exact_rows=tuple(sorted(Collect(rows=rows).rows_of(len(tokens)))),
        part=part,
        unseen=heads.unseen,
        head_scores=scored,
    )


def _say_nothing(line: str) -> None:
    """Stand in for whoever is not there to be told."""


def _scored(opened: OpenedModel, say: Notify) -> HeadScores:
    say(f"scoring the heads of {opened.name} on random tokens")
    return head_scores(opened)


def _run(model: nn.Module, given: Given) -> Any:
    # The logits of thousands of tokens are the largest tensor of all, and only the last ones are read.
    accepted = inspect.signature(model.forward).parameters
    spared = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}
    fitting = {name: tensor for name, tensor in given.inputs.items() if name in accepted}
    with torch.inference_mode():
        return model(**fitting, **spared)


@contextmanager
def _counting_layers(opened: OpenedModel, layers: Sequence[AttachedLayer], say: Notify) -> Iterator[None]:
    """Say now and then how many layers have run."""
    done, last = 0, time.monotonic()

    def count(module: nn.Module, args: Any, output: Any) -> None:
        nonlocal done, last
        done += 1
        if time.monotonic() - last >= QUIET_SECONDS:
            last = time.monotonic()
            say(f"running {opened.name}: {done} of {len(layers)} layers are through")

    with ExitStack() as hooks:
        for name in {layer.name for layer in layers}:
            hooks.callback(opened.model.get_submodule(name).register_forward_hook(count).remove)
        yield


def _tokens(
    given: Given, part: Part | None, evidence: Evidence[torch.Tensor], outputs: Any
) -> tuple[tuple[Token, ...], tuple[Token, ...] | None, Grid | None]:
    """Return the tokens that look, those that are looked at where they are others, and the image's grid."""
    if part == "decoder":
        return given.decoder_tokens or (), None, None
    read, grid = given.tokens, None
    if read is None:
        rows = outputs.encoder_last_hidden_state if part == "cross" else evidence.entropy[0].unsqueeze(-1)
        read, grid = patch_tokens(given.grid, rows.shape[1])
    return (given.decoder_tokens or (), read, grid) if part == "cross" else (read, None, grid)


def _check_lengths(
    opened: OpenedModel, recorded: Sequence[tuple[AttachedLayer, Evidence[torch.Tensor]]], seq_len: int
) -> None:
    for place, evidence in recorded:
        found = evidence.entropy.shape[-1]
        if found != seq_len:
            raise UnsupportedError(
                f"{place.name} of {opened.name} works on {found} places where there are {seq_len} tokens, "
                "and view shows layers that all read the same; use attach() to record it from Python"
            )
