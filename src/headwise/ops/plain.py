"""Attention in plain torch operations, a block of rows at a time: every convention, any gradient.

The scores of one block exist at once, never those of all rows, unless autograd keeps them for the backward
pass. Keys and values are never repeated for grouped heads: the query heads that read one KV head are stacked
into one matrix product.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from headwise.ops import nonfinite
from headwise.ops.arguments import Call
from headwise.ops.grouped import grouped_product
from headwise.ops.results import AttentionResult

SCORES_PER_BLOCK = 2**23
"""How many scores a block holds at most: 32 MiB of float32."""


class RowBlock(NamedTuple):
    """Attention of the queries `rows`, in the dtype of computation.

    - output `[batch, num_heads, rows, value_head_dim]`, logsumexp `[batch, num_heads, rows]`
    - weights `[batch, num_heads, rows, kv_len]`, before dropout
    - hidden: boolean, broadcasts to weights; None if every key is seen
    """

    rows: slice
    output: Tensor
    logsumexp: Tensor
    weights: Tensor
    hidden: Tensor | None


def attend(call: Call) -> AttentionResult:
    """Return output and logsumexp of the whole call."""
    done = list(blocks(call))
    output = torch.cat([block.output for block in done], dim=2).to(call.query.dtype)
    return AttentionResult(output, torch.cat([block.logsumexp for block in done], dim=2))


def blocks(call: Call) -> Iterator[RowBlock]:
    """Yield attention block by block of rows; at least one block, an empty one if there are no rows."""
    sizes, dtype = call.sizes, call.compute_dtype
    rows_per_block = max(1, SCORES_PER_BLOCK // max(1, sizes.batch * sizes.num_heads * sizes.kv_len))
    key, value = call.key.to(dtype), call.value.to(dtype)
    guarded = not call.visibility.hides_nothing and not nonfinite.all_finite(call.query, key, value)
    for start in range(0, max(1, sizes.seq_len), rows_per_block):
        rows = slice(start, min(start + rows_per_block, sizes.seq_len))
        with torch.autocast(call.query.device.type, enabled=False):  # it would round the scores to 16 bits
            yield _attend_rows(call, rows, key, value, guarded=guarded)


def _attend_rows(call: Call, rows: slice, key: Tensor, value: Tensor, *, guarded: bool) -> RowBlock:
    query = call.scale * call.query[:, :, rows].to(key.dtype)
    scores = nonfinite.scores(query, key) if guarded else grouped_product(query, key.mT)
    if call.softcap is not None:
        scores = call.softcap * torch.tanh(scores / call.softcap)
    hidden = call.visibility.hidden(rows)
    bias = call.visibility.bias(rows, hidden, key.dtype)
    if bias is not None:
        scores = scores + bias.centred
    weights, logsumexp = _softmax(scores, hidden)
    if bias is not None:
        logsumexp = logsumexp + bias.shift
    if call.sinks is not None:
        weights, logsumexp = _join_sinks(weights, logsumexp, call.sinks[:, None])
    kept = functional.dropout(weights, call.dropout) if call.dropout else weights
    output = nonfinite.weighted_sum(kept, value, hidden) if guarded else grouped_product(kept, value)
    if call.head_gates is not None:
        output = output * call.head_gates[..., None, None]
    return RowBlock(rows, output, logsumexp, weights, hidden)


def _softmax(scores: Tensor, hidden: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return weights and logsumexp over what is not hidden; 0 and -inf, and no gradient, for an empty row."""
    if hidden is None:
        return torch.softmax(scores, -1), torch.logsumexp(scores, -1)
    empty = hidden.all(-1, keepdim=True)
    # An empty row gets scores of 0 for the softmax, since a softmax of nothing but -inf is NaN, also backward.
    scores = scores.masked_fill(hidden, -torch.inf).masked_fill(empty, 0.0)
    # The fill after the softmax empties the empty rows, and keeps a row that is NaN from telling hidden keys so.
    weights = torch.softmax(scores, -1).masked_fill(hidden, 0.0)
    return weights, torch.logsumexp(scores, -1).masked_fill(empty[..., 0], -torch.inf)


def _join_sinks(weights: Tensor, logsumexp: Tensor, sinks: Tensor) -> tuple[Tensor, Tensor]:
    """Let a sink, one logit per head, take its share of each row's weight; an empty row stays empty."""
    empty = logsumexp == -torch.inf
    share = torch.sigmoid(logsumexp - sinks)  # exp(logsumexp) / (exp(logsumexp) + exp(sink))
    joined = torch.logaddexp(logsumexp.masked_fill(empty, 0.0), sinks)
    return weights * share.masked_fill(empty, 1.0)[..., None], joined.masked_fill(empty, -torch.inf)
