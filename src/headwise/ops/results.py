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


class Observation(NamedTuple):
    """Output and logsumexp of an attention call, and what was seen on the way."""

    output: Tensor
    logsumexp: Tensor
    evidence: Evidence[Tensor]
