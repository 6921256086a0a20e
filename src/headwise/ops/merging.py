"""Putting partial attentions together."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headwise.errors import ArgumentError
from headwise.ops.results import AttentionResult


def merge(outputs: Sequence[Tensor], logsumexps: Sequence[Tensor]) -> AttentionResult:
    """Return attention over the union of disjoint sets of keys from the attention over each of them.

    Each part is `attention_with_logsumexp` of the same queries without sinks, which every part would count again.
    A row that sees no key of a part takes nothing from it; one that sees no key at all is 0 with logsumexp -inf.
    """
    _check_parts(outputs, logsumexps)
    parts = torch.stack(tuple(logsumexps))
    empty = parts == -torch.inf
    largest = parts.detach().amax(0)
    largest = largest.masked_fill(largest == -torch.inf, 0.0)
    shares = torch.exp(parts - largest)
    total = shares.sum(0)
    nothing = empty.all(0)
    total = total.masked_fill(nothing, 1.0)
    output = torch.zeros_like(outputs[0], dtype=parts.dtype)
    for part, share, unseen in zip(outputs, shares / total, empty, strict=True):
        # What a part holds where it saw nothing is not read: 0 * NaN is NaN.
        output = output + share[..., None] * part.to(parts.dtype).masked_fill(unseen[..., None], 0.0)
    logsumexp = (total.log() + largest).masked_fill(nothing, -torch.inf)
    return AttentionResult(output.to(outputs[0].dtype), logsumexp)


def _check_parts(outputs: Sequence[Tensor], logsumexps: Sequence[Tensor]) -> None:
    if len(outputs) != len(logsumexps) or not outputs:
        raise ArgumentError(
            f"merge got {len(outputs)} outputs and {len(logsumexps)} logsumexps; give one of each per part, at least one"
        )
    for index, (output, logsumexp) in enumerate(zip(outputs, logsumexps, strict=True)):
        same = (output.shape, output.dtype, logsumexp.dtype) == (
            outputs[0].shape,
            outputs[0].dtype,
            logsumexps[0].dtype,
        )
        if not same or output.shape[:-1] != logsumexp.shape:
            raise ArgumentError(
                f"part {index} has output {tuple(output.shape)} {output.dtype} and logsumexp {tuple(logsumexp.shape)} "
                f"{logsumexp.dtype}, part 0 output {tuple(outputs[0].shape)} {outputs[0].dtype}; all parts must have "
                "the same, and logsumexp the shape of output without its last axis"
            )
