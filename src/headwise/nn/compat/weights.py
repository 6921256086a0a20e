"""Attention that returns its weights too: exact, before dropout, differentiable."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from headwise.evidence import Collect
from headwise.masks import Mask
from headwise.nn.observing import observing_is_attending
from headwise.ops import arguments, attention, nonfinite, observe, plain
from headwise.ops.arguments import Call
from headwise.ops.joining import JoinedRows
from headwise.ops.visibility import Visibility


def attention_with_weights(
    query: Tensor, key: Tensor, value: Tensor, *, mask: Mask | None, dropout: float, average: bool
) -> tuple[Tensor, Tensor]:
    """Return what `attention` returns, to the bit, and the weights, in the dtype of computation.

    The weights are `[batch, num_heads, seq_len, kv_len]`, or their mean over the heads; 0 where a row sees no
    key.
    """
    if observing_is_attending(query, key, value, mask=mask, dropout=dropout):
        seen = observe(query, key, value, mask=mask, collect=Collect(weights=True))
        weights = cast(Tensor, seen.evidence.weights)  # they were asked for
        return seen.output, weights.mean(1) if average else weights
    output = attention(query, key, value, mask=mask, dropout=dropout)
    return output, _weights(query, key, mask, average=average)


def _weights(query: Tensor, key: Tensor, mask: Mask | None, *, average: bool) -> Tensor:
    """Return the weights; where their mean is asked for, those of one block of rows exist at once."""
    call = arguments.check(query, key, key, mask=mask)
    wide = key.to(call.compute_dtype)
    if query.is_meta:
        return _mean(_followed(call, wide), average)
    with torch.autocast(query.device.type, enabled=False):  # it would round the scores to 16 bits
        if torch.compiler.is_compiling():
            return _mean(_followed(call, wide), average)
        guarded, joined = not nonfinite.surely_finite(call), JoinedRows(call.sizes.seq_len)
        for rows in plain.row_slices(call):
            weights, _, _ = plain.weigh_rows(call, rows, wide, guarded=guarded)
            joined.add(rows, weights.mean(1, keepdim=True) if average else weights)
    return joined.whole()[:, 0] if average else joined.whole()


def _followed(call: Call, key: Tensor) -> Tensor:
    """Return the weights of all rows by torch's operations alone, without a look at a number."""
    seen = call.visibility
    visibility = _OnlyTensors(seen.sizes, seen.device, seen.structured, seen.boolean, seen.additive)
    weights, _, _ = plain.weigh_rows(replace(call, visibility=visibility), slice(None), key, guarded=True)
    return weights


def _mean(weights: Tensor, average: bool) -> Tensor:
    return weights.mean(1) if average else weights


class _OnlyTensors(Visibility):
    """What all rows see, for compilers, which do not follow the intervals of rows."""

    def hidden(self, rows: slice) -> Tensor:
        """Return what is hidden, `[batch or 1, num_heads or 1, seq_len or 1, kv_len or 1]`."""
        hidden = torch.zeros(1, 1, 1, 1, dtype=torch.bool, device=self.device)
        if self.structured:  # the causal order of torch's module, which has no other structured mask
            size = (self.sizes.seq_len, self.sizes.kv_len)
            hidden = torch.ones(size, dtype=torch.bool, device=self.device).triu(1)[None, None]
        for tensor in self.boolean:
            hidden = hidden | ~tensor
        for tensor in self.additive:
            hidden = hidden | (tensor.detach() == -torch.inf)
        return hidden
