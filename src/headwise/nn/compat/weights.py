"""Attention that returns its weights too: exact, before dropout, differentiable."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from headwise.evidence import Collect
from headwise.masks import Mask
from headwise.nn.observing import observing_is_attending
from headwise.ops import arguments, attention, nonfinite, observe, plain
from headwise.ops.joining import JoinedRows


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
    wide, guarded = key.to(call.compute_dtype), not nonfinite.surely_finite(call)
    joined = JoinedRows(call.sizes.seq_len)
    with torch.autocast(query.device.type, enabled=False):  # it would round the scores to 16 bits
        for rows in plain.row_slices(call):
            weights, _, _ = plain.weigh_rows(call, rows, wide, guarded=guarded)
            joined.add(rows, weights.mean(1, keepdim=True) if average else weights)
    return joined.whole()[:, 0] if average else joined.whole()
