"""The gradients of attention by their formula, in torch operations, a block of rows at a time.

With weights P, an upstream G of the output and g of the logsumexp, the gradient of the scores is
`P * (G value^T - rowsum(P * G value^T) + g)`; all others are products of it. The weights of one block are
computed again, by a softmax rather than as `exp(score - logsumexp)`: where scores are large, the rounding of
the logsumexp would make them sum to something other than 1, and every gradient be off by as much. No more
than one block is ever held, and the formula can itself be differentiated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor

from headwise.ops import nonfinite, plain
from headwise.ops.arguments import Call
from headwise.ops.dropout import kept
from headwise.ops.grouped import grouped_outer, grouped_product
from headwise.ops.joining import JoinedRows


class Asked(NamedTuple):
    """Which gradients are asked for; of the biases, each by itself."""

    query: bool
    key: bool
    value: bool
    sinks: bool
    biases: tuple[bool, ...]


class Found(NamedTuple):
    """The gradients, each in the shape and dtype of its tensor; None where it was not asked for.

    - sinks `[batch, num_heads]` in the dtype of computation: each batch element's share
    """

    query: Tensor | None
    key: Tensor | None
    value: Tensor | None
    sinks: Tensor | None
    biases: tuple[Tensor | None, ...]


def gradients(
    call: Call, grad_output: Tensor, grad_logsumexp: Tensor | None, *, asked: Asked, guarded: bool
) -> Found:
    """Return the gradients of a call without gates.

    Args:
        call: the call.
        grad_output: the upstream of its output.
        grad_logsumexp: that of its logsumexp, or None.
        asked: which are wanted.
        guarded: keeps NaN and infinity apart, as in `plain`.

    """
    with torch.autocast(call.query.device.type, enabled=False):  # it would round the scores to 16 bits
        return _Sums(call, asked, guarded=guarded).of(grad_output, grad_logsumexp)


@dataclass(frozen=True)
class _Block:
    """What a block of rows adds to.

    - weights `[batch, num_heads, rows, kv_len]`, after dropout
    - scores: the gradient of the scores, of the same shape, and `products`, that of `query . key`
    - sinks `[batch, num_heads]`, or None
    """

    rows: slice
    upstream: Tensor
    weights: Tensor
    scores: Tensor
    products: Tensor
    sinks: Tensor | None


class _Sums:
    """The gradients of a call while its blocks are added up."""

    def __init__(self, call: Call, asked: Asked, *, guarded: bool) -> None:
        self._call, self._asked, self._guarded = call, asked, guarded
        self._key, self._value = call.key.to(call.compute_dtype), call.value.to(call.compute_dtype)
        # What is not finite carries no gradient, and 0 times it would be NaN.
        self._clean_key = nonfinite.without_bad_rows(self._key) if guarded else self._key
        self._bad_values = ~self._value.detach().isfinite() if guarded else None
        self._clean_value = self._cleaned(self._value)
        self._query = JoinedRows(call.sizes.seq_len)
        self._sums: dict[str, Tensor] = {}
        self._biases = [_BiasSum(bias, call.sizes.seq_len) for bias in call.visibility.additive]

    def of(self, grad_output: Tensor, grad_logsumexp: Tensor | None) -> Found:
        """Return the gradients for these upstreams."""
        for rows in plain.row_slices(self._call):
            upstream = grad_output[:, :, rows].to(self._key.dtype)
            of_logsumexp = None if grad_logsumexp is None else grad_logsumexp[:, :, rows]
            self._add(self._block(rows, upstream, of_logsumexp))
        call, asked = self._call, self._asked
        value = self._sums.get("value")
        return Found(
            query=self._query.whole().to(call.query.dtype) if asked.query else None,
            key=self._sums["key"].to(call.key.dtype) if asked.key else None,
            value=None if value is None else self._cleaned(value).to(call.value.dtype),
            sinks=self._sums.get("sinks"),
            biases=tuple(
                each.whole() if wanted else None
                for each, wanted in zip(self._biases, asked.biases, strict=True)
            ),
        )

    def _block(self, rows: slice, upstream: Tensor, of_logsumexp: Tensor | None) -> _Block:
        call, guarded = self._call, self._guarded
        capped = plain.score_rows(call, rows, self._key, guarded=guarded)
        weights, logsumexp, hidden = plain.weigh_scores(call, rows, capped, guarded=guarded)
        grad_weights = grouped_product(upstream, self._clean_value.mT)
        summed = weights
        if call.dropout:
            decided = kept(call, rows)
            summed, grad_weights = weights * decided, grad_weights * decided
        means = (weights * grad_weights).sum(-1, keepdim=True)
        if of_logsumexp is not None:
            # An empty row has the same logsumexp whatever its inputs are.
            means = means - of_logsumexp.masked_fill(logsumexp == -torch.inf, 0.0)[..., None]
        scores = weights * (grad_weights - means)
        if guarded and hidden is not None:
            scores = scores.masked_fill(hidden, 0.0)
        products = scores if call.softcap is None else scores * (1.0 - (capped / call.softcap).square())
        if guarded:
            products = products.masked_fill(nonfinite.bad_scores(self._rows_of_query(rows), self._key), 0.0)
        return _Block(rows, upstream, summed, scores, products, self._of_sinks(means, logsumexp))

    def _of_sinks(self, means: Tensor, logsumexp: Tensor) -> Tensor | None:
        if not self._asked.sinks or self._call.sinks is None:
            return None
        # Only an empty row has no logsumexp beside a sink, and there the sink takes nothing.
        nothing = logsumexp == -torch.inf
        weights = torch.exp(self._call.sinks[..., None] - logsumexp.masked_fill(nothing, torch.inf))
        return -(weights * means[..., 0]).sum(-1)

    def _add(self, block: _Block) -> None:
        call, asked = self._call, self._asked
        if asked.query:
            self._query.add(block.rows, call.scale * grouped_product(block.products, self._clean_key))
        if asked.key:
            query = self._rows_of_query(block.rows)
            query = call.scale * (nonfinite.without_bad_rows(query) if self._guarded else query)
            self._sum("key", grouped_outer(block.products, query, call.num_kv_heads))
        if asked.value:
            self._sum("value", grouped_outer(block.weights, block.upstream, call.num_kv_heads))
        if block.sinks is not None:
            self._sum("sinks", block.sinks)
        for bias, wanted in zip(self._biases, asked.biases, strict=True):
            if wanted:
                bias.add(block.rows, block.scores)

    def _rows_of_query(self, rows: slice) -> Tensor:
        return self._call.query[:, :, rows].to(self._key.dtype)

    def _cleaned(self, values: Tensor) -> Tensor:
        return values if self._bad_values is None else values.masked_fill(self._bad_values, 0.0)

    def _sum(self, name: str, part: Tensor) -> None:
        self._sums[name] = self._sums[name] + part if name in self._sums else part


class _BiasSum:
    """The gradient of one bias, of which any size may be 1."""

    def __init__(self, bias: Tensor, seq_len: int) -> None:
        self._bias = bias
        self._joined = JoinedRows(seq_len) if bias.shape[2] > 1 else None
        self._sum: Tensor | None = None

    def add(self, rows: slice, scores: Tensor) -> None:
        """Take in the gradient of the scores of `rows`."""
        axes = [axis for axis, size in enumerate(self._bias.shape) if size == 1]
        part = scores.sum(axes, keepdim=True) if axes else scores
        if self._joined is not None:
            self._joined.add(rows, part.to(self._bias.dtype))
        else:
            self._sum = part if self._sum is None else self._sum + part

    def whole(self) -> Tensor:
        """Return it; at least one part must have been taken in."""
        if self._joined is not None:
            return self._joined.whole()
        return cast(Tensor, self._sum).to(self._bias.dtype)
