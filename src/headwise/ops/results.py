"""What the operators return."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from headwise.evidence import Evidence


class AttentionResult(NamedTuple):
    """Output and logsumexp of an attention call.

    - output `[batch, num_heads, seq_len, value_head_dim]`, dtype of the query
    - logsumexp `[batch, num_heads, seq_len]`, natural, float32 (float64 for float64), sinks included; -inf
      where a row sees no key
    """

    output: Tensor
    logsumexp: Tensor


class Softmaxed(NamedTuple):
    """Output of an attention call, no gate applied, and what a backward pass makes the same softmax from.

    - output, logsumexp: as in `AttentionResult`
    - rows: float32 `[numbers, batch, num_heads, seq_len]`, what the kernel made the softmax of each row with:
      its maximum, its sum and what was taken off its bias, in that order, the last one only where there is a
      bias; of size 0 where another path computed
    """

    output: Tensor
    logsumexp: Tensor
    rows: Tensor

    @property
    def maxima(self) -> Tensor:
        """The largest score of each row, in the kernel's own units."""
        return self.rows[0]

    @property
    def sums(self) -> Tensor:
        """What the weights of each row were divided by."""
        return self.rows[1]

    @property
    def shifts(self) -> Tensor:
        """What was taken off the bias of each row; of no meaning without a bias."""
        return self.rows[2]


class Wanted(NamedTuple):
    """Which gradients are asked for."""

    query: bool
    key: bool
    value: bool
    bias: bool
    sinks: bool


class Gradients(NamedTuple):
    """The gradients of one call, each in the shape of its tensor; None where it was not asked for.

    - bias: of the one bias that the kernel was given, not expanded, in float32
    - sinks `[batch, num_heads]`, float32: each batch element's share
    """

    query: Tensor | None
    key: Tensor | None
    value: Tensor | None
    bias: Tensor | None
    sinks: Tensor | None


class Observation(NamedTuple):
    """Output and logsumexp of an attention call, and what was seen on the way."""

    output: Tensor
    logsumexp: Tensor
    evidence: Evidence[Tensor]
