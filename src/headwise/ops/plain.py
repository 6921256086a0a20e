"""Attention in plain torch operations, a block of rows at a time: every convention, any gradient.

The scores of one block exist at once, never those of all rows, unless autograd keeps them for the backward
pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.ops import dropout, nonfinite
from headwise.ops.arguments import Call
from headwise.ops.grouped import grouped_product
from headwise.ops.joining import JoinedRows
from headwise.ops.results import AttentionResult

SCORES_PER_BLOCK = 2**22
"""How many scores a block holds at most, one row aside: 16 MiB of float32."""


@dataclass(frozen=True)
class RowBlock:
    """What the queries `rows` do, in the dtype of computation.

    - weights `[batch, num_heads, rows, kv_len]`, before dropout
    - logsumexp `[batch, num_heads, rows]`
    - hidden: boolean, broadcasts to weights; None if every key is seen
    - output `[batch, num_heads, rows, value_head_dim]`, gated
    """

    rows: slice
    weights: Tensor
    logsumexp: Tensor
    hidden: Tensor | None
    output: Tensor


def attend(call: Call) -> AttentionResult:
    """Return output and logsumexp of the whole call."""
    output, logsumexp = JoinedRows(call.sizes.seq_len), JoinedRows(call.sizes.seq_len)
    for block in blocks(call):
        output.add(block.rows, block.output)
        logsumexp.add(block.rows, block.logsumexp)
    return AttentionResult(output.whole().to(call.query.dtype), logsumexp.whole())


def blocks(call: Call) -> Iterator[RowBlock]:
    """Yield the rows of the call in order; at least one block, an empty one if there are no rows."""
    key, value = call.key.to(call.compute_dtype), call.value.to(call.compute_dtype)
    guarded = not nonfinite.surely_finite(call)
    for rows in row_slices(call):
        with torch.autocast(call.query.device.type, enabled=False):  # it would round the scores to 16 bits
            block = _attend_rows(call, rows, key, value, guarded=guarded)
        yield block


def row_slices(call: Call) -> Iterator[slice]:
    """Yield the blocks of rows, at least one."""
    sizes = call.sizes
    count = max(1, SCORES_PER_BLOCK // max(1, sizes.batch * sizes.num_heads * sizes.kv_len))
    for start in range(0, max(1, sizes.seq_len), count):
        yield slice(start, min(start + count, sizes.seq_len))


def weigh_rows(
    call: Call, rows: slice, key: Tensor, *, guarded: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return weights, logsumexp and what is hidden (`RowBlock` has the shapes) of the queries `rows`.

    `guarded` keeps NaN and infinity apart, which costs a second product.
    """
    return weigh_scores(call, rows, score_rows(call, rows, key, guarded=guarded), guarded=guarded)


def score_rows(call: Call, rows: slice, key: Tensor, *, guarded: bool) -> Tensor:
    """Return the scores of the queries `rows`, capped, before bias and mask."""
    query = call.scale * call.query[:, :, rows].to(key.dtype)
    scores = nonfinite.scores(query, key) if guarded else grouped_product(query, key.mT)
    return scores if call.softcap is None else call.softcap * torch.tanh(scores / call.softcap)


def weigh_scores(
    call: Call, rows: slice, scores: Tensor, *, guarded: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return what `weigh_rows` does from the scores."""
    hidden = call.visibility.hidden(rows)
    bias = call.visibility.bias(rows, hidden, scores.dtype)
    if bias is not None:
        scores = scores + bias.centred
    weights, logsumexp = _softmax(scores, hidden)
    if bias is not None:
        logsumexp = logsumexp + bias.shift
    if call.sinks is not None:
        if guarded:
            # The softmax of nothing but -inf is NaN; beside a sink such a row has one, and its weights are 0.
            weights = weights.masked_fill((logsumexp == -torch.inf)[..., None], 0.0)
        weights, logsumexp = _join_sinks(weights, logsumexp, call.sinks[..., None], hidden)
    return weights, logsumexp, hidden


def _attend_rows(call: Call, rows: slice, key: Tensor, value: Tensor, *, guarded: bool) -> RowBlock:
    weights, logsumexp, hidden = weigh_rows(call, rows, key, guarded=guarded)
    kept = weights * dropout.kept(call, rows) if call.dropout else weights
    if guarded:
        summed = nonfinite.weighted_sum(kept, value, hidden, is_mean=not call.dropout)
        output = nonfinite.gated(call, summed, hidden)
    else:
        output = call.gated(grouped_product(kept, value))
    return RowBlock(rows, weights, logsumexp, hidden, output)


def _softmax(scores: Tensor, hidden: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return weights and logsumexp over what is seen; 0 and -inf, and no gradient, for an empty row."""
    if hidden is None:
        return torch.softmax(scores, -1), torch.logsumexp(scores, -1)
    empty = hidden.all(-1, keepdim=True)
    # An empty row gets scores of 0, since the softmax of nothing but -inf is NaN, backward too.
    scores = scores.masked_fill(hidden, -torch.inf).masked_fill(empty, 0.0)
    # The second fill empties the empty rows, and keeps a row that is NaN from passing that on to hidden keys.
    weights = torch.softmax(scores, -1).masked_fill(hidden, 0.0)
    return weights, torch.logsumexp(scores, -1).masked_fill(empty[..., 0], -torch.inf)


def _join_sinks(
    weights: Tensor, logsumexp: Tensor, sinks: Tensor, hidden: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Let a sink, one logit per head, take its share of each row's weight; an empty row stays empty.

    A row that sees keys at -inf alone leaves all of it to the sink. A sink of +inf leaves no softmax.
    """
    without_score = logsumexp == -torch.inf
    empty = torch.full_like(without_score, weights.shape[-1] == 0) if hidden is None else hidden.all(-1)
    share = torch.sigmoid(logsumexp - sinks)  # exp(logsumexp) / (exp(logsumexp) + exp(sink))
    share = share.masked_fill(sinks == torch.inf, torch.nan).masked_fill(empty, 1.0)
    joined = torch.logaddexp(logsumexp.masked_fill(without_score, 0.0), sinks)
    joined = torch.where(without_score, sinks, joined).masked_fill(empty, -torch.inf)
    joint = weights * share[..., None]
    # A share that is NaN must not reach hidden keys.
    return joint if hidden is None else joint.masked_fill(hidden, 0.0), joined
