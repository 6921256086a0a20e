"""What stands in for an ablated head: taken from the head's own output on the texts of a baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headwise.errors import ArgumentError, UnsupportedError
from headwise.models.attachment import probe
from headwise.models.attachment.ablation import Mean, Resample, StandIn, Zero
from headwise.models.attachment.discover import AttachedLayer
from headwise.models.attachment.layer_call import LayerCall
from headwise.models.attachment.recording import Recorder

How = Literal["zero", "mean", "resample"]
HOWS: tuple[How, ...] = get_args(How)

BaselineOutput = tuple[Tensor, Tensor]
"""A layer's output, `[batch, num_heads, seq_len, value_head_dim]`, and its real rows, `[batch, seq_len]`."""


def stand_ins(
    model: PreTrainedModel,
    recorder: Recorder,
    layer: AttachedLayer,
    heads: Iterable[int],
    *,
    how: How,
    baseline: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
) -> dict[int, StandIn]:
    """Return what stands in for each of `heads`; see `Attachment.ablate`.

    Raises:
        ArgumentError: `how` is unknown, or the baseline is missing, not wanted, or useless.
        UnsupportedError: `"resample"` in an encoder-decoder.

    """
    if how not in HOWS:
        raise ArgumentError(f"how={how!r} is unknown; allowed are {', '.join(map(repr, HOWS))}")
    if (baseline is None) != (how == "zero"):
        needed = "takes no baseline" if how == "zero" else "needs baseline=, inputs of the model"
        raise ArgumentError(f"how={how!r} {needed}; baseline is a {type(baseline).__name__}")
    if baseline is None:
        return dict.fromkeys(heads, Zero())
    if how == "resample" and model.config.is_encoder_decoder:
        raise UnsupportedError(
            f'how="resample" in {type(model).__name__}: an encoder-decoder reads two texts, so "the same '
            'place" has no one meaning; use how="mean" or "zero"'
        )
    one = isinstance(baseline, Mapping) or not isinstance(baseline, Iterable)
    texts: list[Any] = [baseline] if one else list(baseline)
    if not texts:
        raise ArgumentError("baseline is an empty list; give at least one text, as inputs of the model")
    outputs = [each for text in texts for each in _outputs_on(model, recorder, layer, text)]
    make = _mean if how == "mean" else _table
    return {head: make(outputs, head) for head in heads}


def _mean(outputs: Sequence[BaselineOutput], head: int) -> Mean:
    """Return the mean of one head's output over the real rows of several texts."""
    rows = torch.cat([output[:, head].double()[real] for output, real in outputs])
    if not len(rows):
        raise ArgumentError("baseline holds padding only; give at least one token to take the mean over")
    return Mean(rows.mean(0))


def _table(outputs: Sequence[BaselineOutput], head: int) -> Resample:
    """Return one head's output at the real rows of one text."""
    texts = [text for output, real in outputs for text in zip(output[:, head], real, strict=True)]
    if len(texts) != 1:
        raise ArgumentError(
            f'how="resample" takes the output on one other text, and baseline holds {len(texts)}; '
            "pass a batch of one"
        )
    rows, real = texts[0]
    return Resample(rows[real])


def _outputs_on(
    model: PreTrainedModel, recorder: Recorder, layer: AttachedLayer, text: Mapping[str, Any]
) -> list[BaselineOutput]:
    """Return the output of one layer on a text, with every head on, and which rows are no padding."""
    with recorder.capturing(layer) as found, probe.in_eval_mode(model):
        probe.run_given(model, text, "baseline")
    if not found:
        raise ArgumentError(
            f"baseline with {', '.join(sorted(text))} never reaches layer {layer.layer} ({layer.name}); "
            "give inputs that do"
        )
    return [(output, _real_rows(text, layer, output, call)) for output, call in found]


def _real_rows(text: Mapping[str, Any], layer: AttachedLayer, output: Tensor, call: LayerCall) -> Tensor:
    # The rows of a cross-attention layer are the decoder's tokens; its mask speaks of the encoder's.
    real = text.get("decoder_attention_mask") if layer.kind == "cross" else call.real_rows()
    if real is None:
        return torch.ones(output.shape[0], output.shape[2], dtype=torch.bool, device=output.device)
    return real.to(output.device, torch.bool).expand(output.shape[0], -1)
