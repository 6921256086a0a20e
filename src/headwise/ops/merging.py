"""Putting partial attentions together."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headwise.errors import ArgumentError
from headwise.ops.results import AttentionResult


def merge(outputs: Sequence[Tensor], logsumexps: Sequence[Tensor]) -> AttentionResult:
    """Return attention over the union of disjoint sets of keys from the attention over each of them.

    A row that sees no key of a part takes nothing from it; one that sees no key at all is 0 with
    logsumexp -inf. NaN and infinity in a part count however small its share is, as they do in one call.

    Args:
        outputs: outputs of `attention_with_logsumexp` for the same queries, one for each set of keys,
            computed without sinks: every part would count them again.
        logsumexps: their logsumexps, in the same order.

    Raises:
        ArgumentError: the parts differ in number, shape or dtype.

    Example:
        >>> import torch
        >>> from headwise import attention, attention_with_logsumexp, merge
        >>> query, key, value = torch.randn(3, 1, 2, 5, 7).unbind()
        >>> old = attention_with_logsumexp(query, key[:, :, :2], value[:, :, :2])
        >>> new = attention_with_logsumexp(query, key[:, :, 2:], value[:, :, 2:])
        >>> whole = merge([old.output, new.output], [old.logsumexp, new.logsumexp])
        >>> torch.testing.assert_close(whole.output, attention(query, key, value))

    Source: Milakov and Gimelshein 2018, section 3, which gives the merge of partial softmaxes.

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
    infinite = torch.zeros_like(output)
    for part, share, unseen in zip(outputs, shares / total, empty, strict=True):
        # What a part holds where it saw nothing is not read: 0 * NaN is NaN.
        seen = part.to(parts.dtype).masked_fill(unseen[..., None], 0.0)
        finite = seen.detach().isfinite()
        output = output + share[..., None] * seen.masked_fill(~finite, 0.0)
        infinite = infinite + seen.detach().masked_fill(finite, 0.0)
    limits = torch.finfo(parts.dtype)  # rounding must not carry a mean of finite numbers beyond them
    output = output.clamp(limits.min, limits.max) + infinite
    logsumexp = (total.log() + largest).masked_fill(nothing, -torch.inf)
    logsumexp = logsumexp.masked_fill(largest == torch.inf, torch.inf)
    return AttentionResult(output.to(outputs[0].dtype), logsumexp)


def _check_parts(outputs: Sequence[Tensor], logsumexps: Sequence[Tensor]) -> None:
    if len(outputs) != len(logsumexps) or not outputs:
        raise ArgumentError(
            f"merge got {len(outputs)} outputs and {len(logsumexps)} logsumexps; "
            "give one of each per part, and at least one part"
        )
    first = _kind(outputs[0], logsumexps[0])
    for index, part in enumerate(zip(outputs, logsumexps, strict=True)):
        output, logsumexp = part
        if _kind(*part) != first or output.shape[:-1] != logsumexp.shape:
            raise ArgumentError(
                f"part {index} has {_kind(*part)}, part 0 has {first}; all parts must have the same, "
                "and logsumexp the shape of output without its last axis"
            )


def _kind(output: Tensor, logsumexp: Tensor) -> str:
    return (
        f"output {tuple(output.shape)} {output.dtype} "
        f"and logsumexp {tuple(logsumexp.shape)} {logsumexp.dtype}"
    )
