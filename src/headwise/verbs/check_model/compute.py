"""Run a model once under its own attention, and look for what is wrong with it and with its heads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from transformers import PreTrainedModel

from headwise.counts import checked_size
from headwise.errors import ArgumentError, UnsupportedError
from headwise.models.attachment import AttachedLayer
from headwise.models.attachment.interface import LISTENERS
from headwise.models.attachment.probe import FAILURES, in_eval_mode
from headwise.models.opening.opened_model import OpenedModel, open_model
from headwise.models.quiet import quiet_libraries
from headwise.models.short_cause import short_cause
from headwise.verbs.check_model.copies import find_copies
from headwise.verbs.check_model.dead import dead_findings
from headwise.verbs.check_model.duplicates import duplicate_findings, tied_remarks
from headwise.verbs.check_model.faults_of_layers import spoiled_input, spoiled_weights, wrong_attention
from headwise.verbs.check_model.finite import Spoiled, finite_weights
from headwise.verbs.check_model.kv_order import kv_orders, order_finding
from headwise.verbs.check_model.listening import Heard, HeardLayer, hear, weight_of
from headwise.verbs.check_model.reading import Given, candidates
from headwise.verbs.check_model.result import MATRICES, WRITTEN, Finding, LayerCheck, ModelCheck
from headwise.verbs.check_model.sources import LEAST_TOKENS
from headwise.verbs.check_model.weights import examinable
from headwise.verbs.check_model.words import listed
from headwise.verbs.terminal import several

Notify = Callable[[str], None]
QUIET_SECONDS = 2.0
"""Within so long of the last line of progress no further layer is reported."""


def check_model(
    model: str | Path | OpenedModel | PreTrainedModel,
    *,
    text: str | None = None,
    seed: int = 0,
    notify: Notify | None = None,
) -> ModelCheck:
    """Return whether a model's attention is right at every layer, and which heads are duplicates or dead.

    The model runs once, under the attention it was loaded with. Every layer's output is held against the
    definition in float64 on the very tensors that the layer handed over. The projections of query, key, value
    and output are found by their numbers; where one is not found, `not_found` of the layer says so.

    Args:
        model: a catalogue name, a folder, a `.safetensors` or `.gguf` file, a hub id, an opened model, or a
            transformers model in memory.
        text: what it reads; a sample sentence by default, and random tokens where there is no tokenizer.
        seed: of random tokens.
        notify: called with a line of text before each step that can take long, and during it.

    Raises:
        ArgumentError: the text cannot be read, or the model is attached at the moment.
        ModelError: the model cannot be opened.
        UnsupportedError: its attention cannot be heard, or it runs on nothing that could be made for it.

    Example:
        >>> found = check_model("minilm-l6")
        >>> found.is_right, len(found.layers)
        (True, 6)

    """
    seed = checked_size("seed", seed, at_least=0)
    say = notify or _say_nothing
    opened = _opened(model, notify)
    _refuse_unsuited(opened)
    implementation = opened.model.config._attn_implementation or "eager"
    with quiet_libraries(), in_eval_mode(opened.model), finite_weights(opened.model) as spoiled:
        given, heard = _heard(opened, candidates(opened, text=text, seed=seed), say)
        say(f"comparing the heads of {opened.name}")
        findings, remarks = _found(heard, spoiled, implementation)
    return ModelCheck(
        model=opened.name,
        family=opened.model.config.model_type,
        implementation=implementation,
        dtype=str(opened.model.dtype).removeprefix("torch."),
        text=given.text,
        num_tokens=given.num_tokens,
        seed=seed,
        layers=tuple(_layer(*each) for each in zip(heard.layers, heard.calls, strict=True)),
        findings=tuple(findings),
        remarks=tuple(remarks),
        unseen=heard.unseen,
    )


def _say_nothing(line: str) -> None:
    """Stand in for whoever is not there to be told."""


def _opened(model: str | Path | OpenedModel | PreTrainedModel, notify: Notify | None) -> OpenedModel:
    if isinstance(model, OpenedModel):
        return model
    if isinstance(model, PreTrainedModel):
        return OpenedModel(type(model).__name__, model, None, Path(), "folder")
    return open_model(model, notify=notify)


def _refuse_unsuited(opened: OpenedModel) -> None:
    model = opened.model
    if any(module in LISTENERS for module in model.modules()):
        raise ArgumentError(
            f"{opened.name} is attached to headwise, which answers in place of its own attention; "
            "detach() it first"
        )
    if any(parameter.is_meta for parameter in model.parameters()):
        raise UnsupportedError(
            f"{opened.name} has parameters on the meta device, which hold no numbers (an empty or offloaded "
            "model); load it into memory first"
        )


def _heard(opened: OpenedModel, tried: Iterator[Given], say: Notify) -> tuple[Given, Heard]:
    """Run the model on the first candidate that it takes."""
    first: Exception | None = None
    last = time.monotonic()

    def on_layer(count: int) -> None:
        nonlocal last
        if time.monotonic() - last >= QUIET_SECONDS:
            last = time.monotonic()
            say(f"running {opened.name}: {count} layers are through")

    say(f"running {opened.name}")
    for given in tried:
        try:
            return given, hear(opened.model, given.inputs, on_layer)
        except FAILURES as error:
            first = first or error
    cause = "it reads nothing that could be made for it" if first is None else short_cause(first)
    raise UnsupportedError(
        f"{opened.name} could not be run ({opened.model.main_input_name} is its main input): {cause}"
    ) from first


def _found(
    heard: Heard, spoiled: Sequence[Spoiled], implementation: str
) -> tuple[list[Finding], list[Finding]]:
    """Return what is wrong, the worst kinds first, and what is to be remarked."""
    held = [(layer, call.held) for layer, call in zip(heard.layers, heard.calls, strict=True)]
    findings = [
        wrong_attention(layer, each, implementation)
        for layer, each in held
        if each.is_finite and not each.is_right
    ]
    spoiled_layers = [layer for layer, each in held if not each.is_finite]
    if spoiled_layers:
        findings.append(spoiled_input(spoiled_layers))
    weights = examinable(heard)
    findings += spoiled_weights(spoiled, weights, heard.layers)
    copies = {matrix: find_copies(matrix, weights) for matrix in MATRICES}
    orders = kv_orders(weights, copies["key"], copies["value"])
    remarks = list(tied_remarks(weights))
    for place, order in orders.items():
        (findings if order.order == "tiled" else remarks).append(order_finding(weights[place], order))
    findings += duplicate_findings(weights, copies, orders)
    first_calls: dict[str, HeardLayer] = {}
    for layer, call in zip(heard.layers, heard.calls, strict=True):
        first_calls.setdefault(layer.name, call)
    for layer_weights in weights:
        findings += dead_findings(layer_weights, first_calls[layer_weights.layer.name])
    return findings, remarks


def _layer(layer: AttachedLayer, call: HeardLayer) -> LayerCheck:
    return LayerCheck(
        layer=layer.layer,
        name=layer.name,
        kind=layer.kind,
        num_heads=layer.num_heads,
        num_kv_heads=layer.num_kv_heads,
        head_dim=layer.head_dim,
        value_head_dim=layer.value_head_dim,
        error=call.held.error,
        allowed=call.held.allowed,
        largest=call.held.largest,
        rows=call.held.rows,
        is_finite=call.held.is_finite,
        projections={matrix: call.sources[matrix].name for matrix in MATRICES if matrix in call.sources},
        not_found=_not_found(call),
    )


def _not_found(call: HeardLayer) -> str | None:
    missing = [WRITTEN[matrix] for matrix in MATRICES if matrix not in call.sources]
    packed = [WRITTEN[matrix] for matrix, source in call.sources.items() if weight_of(source.module) is None]
    if packed:
        return f"{listed(packed)} are packed and hold no floats, so that heads cannot be compared"
    if not missing:
        return None
    if call.num_rows < LEAST_TOKENS:
        size = several(call.num_rows, "token")
        return f"{listed(missing)}: a text of {size} is too short to tell which weights made what"
    return (
        f"{listed(missing)}: no linear layer makes, or reads, these heads as they are (they may be gated, "
        "mixed, cached, or taken over from another layer)"
    )
