"""The logit of the next token as a sum: embedding, every head, biases, every MLP, read by the unembedding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from torch import nn
from transformers import PreTrainedModel

from headwise.models.attachment import AttachedLayer
from headwise.verbs.explain.result import Matrix
from headwise.verbs.explain_model.listening import HeardCall
from headwise.verbs.explain_model.one_head import doubles, slices_of
from headwise.verbs.explain_model.result import LayerParts, LogitParts
from headwise.verbs.explain_model.stream import Stream

ROUNDING = 1e-4
"""Relative to the largest number of a row: what float32 sums of a few terms may differ by, with room."""


class NotASum(Exception):  # noqa: N818 (no error of the user's: it says why a part is left out)
    """A model's logit cannot be taken apart as a sum; the message says why."""


class _FixedNorm(NamedTuple):
    """The final norm with its scale held: `(row - mean) * gain + shift`, or without the mean."""

    name: str
    scale: float
    gain: Matrix
    shift: Matrix
    centred: bool


def take_apart(
    model: PreTrainedModel,
    layers: Sequence[AttachedLayer],
    heard: Sequence[HeardCall],
    stream: Stream,
    *,
    chosen: int,
    position: int,
) -> LogitParts:
    """Return the logit of the token with the number `chosen`, part by part.

    Raises:
        NotASum: the parts do not add up to what the final norm reads, or its scale cannot be held.

    """
    unembedding = model.get_output_embeddings()
    if stream.unembedded is None or not isinstance(unembedding, nn.Linear):
        raise NotASum("the model has no linear unembedding")
    _check_blocks(model, stream, heard)
    read, logits = stream.unembedded
    norm = _fixed_norm(model, stream, read)
    mlps = [_mlp(stream, block, call, position) for block, call in zip(stream.blocks, heard, strict=True)]
    toward = doubles(unembedding.weight[chosen]) * norm.gain
    if norm.centred:  # taking the mean off a part is the same as taking it off what reads it
        toward = toward - toward.mean()
    added = [_added(call, position) for call in heard]
    parts = tuple(
        LayerParts(layer.layer, heads @ toward, float(bias @ toward), float(mlp @ toward))
        for layer, (heads, bias), mlp in zip(layers, added, mlps, strict=True)
    )
    embedding = stream.read[stream.blocks[0]]
    total = embedding + sum(heads.sum(axis=0) + bias for heads, bias in added) + sum(mlps)
    before, _ = stream.norms[norm.name]
    _check_sum(total, before)
    found = LogitParts(
        embedding=float(embedding @ toward),
        layers=parts,
        constant=_constant(unembedding, chosen, norm),
        norm_name=norm.name,
        norm_scale=norm.scale,
        logit=float(logits[chosen]),
        difference=0.0,
        residual_difference=float(np.abs(total - before).max()),
    )
    return replace(found, difference=found.total - found.logit)


def _constant(unembedding: nn.Linear, chosen: int, norm: _FixedNorm) -> float:
    """Return what the biases of the final norm and of the unembedding give."""
    bias = 0.0 if unembedding.bias is None else float(unembedding.bias.detach()[chosen])
    return float(doubles(unembedding.weight[chosen]) @ norm.shift) + bias


def _check_blocks(model: PreTrainedModel, stream: Stream, heard: Sequence[HeardCall]) -> None:
    if len(set(stream.blocks)) != len(stream.blocks):
        raise NotASum("several of its attention layers share one block")
    siblings = model.get_submodule(stream.blocks[0].rpartition(".")[0])
    if not isinstance(siblings, nn.ModuleList) or len(siblings) != len(stream.blocks):
        raise NotASum("some of its blocks have no attention that is recorded")
    missing = next((call for call in heard if call.projection is None), None)
    if missing is not None:
        raise NotASum("the output projection of some of its layers was not found")


def _added(call: HeardCall, position: int) -> tuple[Matrix, Matrix]:
    """Return what each head adds, `[num_heads, d_model]`, and the bias, `[d_model]`."""
    slices, bias = slices_of(call)
    heads = np.einsum("hv,hvd->hd", doubles(call.outputs_at(position)), slices)
    return heads, np.zeros(heads.shape[1]) if bias is None else bias


def _mlp(stream: Stream, block: str, call: HeardCall, position: int) -> Matrix:
    """Return the part of a block that with its attention makes what the block adds."""
    read, written = stream.read.get(block), stream.written.get(block)
    projected = call.projected_at(position)
    if read is None or written is None or projected is None:
        raise NotASum(f"{block} does not hand on one row for each token")
    attention = doubles(projected)
    for part in stream.children.get(block, {}).values():
        if part.shape == written.shape and _close(read + attention + part, written):
            return part
    raise NotASum(
        f"{block} is not the sum of what it reads, its attention and one other part (it may norm or scale "
        "what it adds)"
    )


def _fixed_norm(model: PreTrainedModel, stream: Stream, read: Matrix) -> _FixedNorm:
    """Return the norm that wrote what the unembedding read, as a linear map at its actual scale."""
    name = next((name for name, (_, after) in stream.norms.items() if np.array_equal(after, read)), None)
    if name is None:
        raise NotASum("what the unembedding reads does not come straight from a norm")
    norm, before = model.get_submodule(name), stream.norms[name][0]
    weight = getattr(norm, "weight", None)
    weights = np.ones_like(before) if weight is None else doubles(weight)
    bias = getattr(norm, "bias", None)
    shift = np.zeros_like(before) if bias is None else doubles(bias)
    eps = next((getattr(norm, one) for one in ("eps", "variance_epsilon") if hasattr(norm, one)), 0.0)
    for centred in (False, True):
        row = before - before.mean() if centred else before
        scale = float(1 / np.sqrt((row**2).mean() + float(eps)))
        # Gemma's norms keep how far their weights are from 1.
        for gain in (scale * weights, scale * (1 + weights)):
            if _close(row * gain + shift, read):
                return _FixedNorm(name, scale, gain, shift, centred)
    raise NotASum(f"{name} ({type(norm).__name__}) is neither a layer norm nor a root mean square norm")


def _check_sum(total: Matrix, before: Matrix) -> None:
    if not _close(total, before):
        raise NotASum(
            f"its parts do not add up to what the final norm reads (largest difference "
            f"{np.abs(total - before).max():.2g})"
        )


def _close(found: Matrix, expected: Matrix) -> bool:
    return float(np.abs(found - expected).max()) <= ROUNDING * max(1.0, float(np.abs(expected).max()))
