"""Attention that reports what each head did, without storing its weights."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from headwise.evidence import Collect, Evidence
from headwise.ops import arguments, plain
from headwise.ops.joining import JoinedRows
from headwise.ops.reducers import reducers_for
from headwise.ops.results import Observation
from headwise.ops.rows import RowFacts, first_visible_key


def observe(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    head_gates: Tensor | None = None,
    collect: Collect | None = None,
) -> Observation:
    """Return attention and the evidence of its heads.

    The weights are computed a block of rows at a time and shown to one small reducer a statistic, so memory
    grows with kv_len, not with seq_len x kv_len, unless `Collect(weights=True)` asks for them or autograd
    keeps them: call it under `torch.no_grad()` where no gradient is needed. Evidence has no gradient.

    Args:
        query: `[batch, num_heads, seq_len, head_dim]`.
        key: `[batch, num_kv_heads, kv_len, head_dim]`.
        value: `[batch, num_kv_heads, kv_len, value_head_dim]`.
        mask: as in `attention`, as are all that follow.
        bias: added to the scores.
        scale: multiplies the scores.
        softcap: bound of the soft-capped scores.
        sinks: `[num_heads]` logits that join the denominators.
        head_gates: `[num_heads]` or `[batch, num_heads]` factors of the outputs; weights are ungated.
        collect: what to record besides the statistics that always are.

    Returns:
        The output and logsumexp of `attention_with_logsumexp`, and the evidence.

    Raises:
        ArgumentError: an argument has a type, shape, dtype, device or value that is not allowed.

    Example:
        >>> import torch
        >>> from headwise import Causal, observe
        >>> query, key, value = torch.randn(3, 1, 2, 5, 7).unbind()
        >>> observe(query, key, value, mask=Causal()).evidence.entropy[0, 0, 0]
        tensor(0.)

    """
    call = arguments.check(
        query,
        key,
        value,
        mask=mask,
        bias=bias,
        scale=scale,
        softcap=softcap,
        sinks=sinks,
        head_gates=head_gates,
    )
    reducers = reducers_for(Collect() if collect is None else collect, call)
    first_key = first_visible_key(call)
    output, logsumexp = JoinedRows(call.sizes.seq_len), JoinedRows(call.sizes.seq_len)
    for block in plain.blocks(call):
        output.add(block.rows, block.output)
        logsumexp.add(block.rows, block.logsumexp)
        facts = RowFacts.of(block, call, first_key)
        for reducer in reducers:
            reducer.add(facts)
    fields = {name: found for reducer in reducers for name, found in reducer.fields().items()}
    return Observation(output.whole().to(query.dtype), logsumexp.whole(), Evidence(**fields))
