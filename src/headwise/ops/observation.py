"""Attention that reports what each head did, without storing its weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headwise.errors import ArgumentError
from headwise.evidence import Collect
from headwise.ops import arguments, kernel_visit, plain, through_operator
from headwise.ops.arguments import Call
from headwise.ops.first_key import FirstKey, first_keys
from headwise.ops.joining import JoinedRows
from headwise.ops.reducers import Gathering
from headwise.ops.results import Observation
from headwise.ops.routes import route_of
from headwise.ops.rows import RowFacts


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
    first_key: FirstKey = None,
) -> Observation:
    """Return attention and the evidence of its heads.

    The weights are computed a block of rows at a time and shown to one small reducer a statistic, so memory
    grows with kv_len, not with seq_len x kv_len, unless `Collect(weights=True)` asks for them. Output and
    logsumexp have gradients, for which everything is computed once more; evidence has none.

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
        first_key: the key that counts as the first token, an integer or one for each batch element; a
            negative one says that the first token is no longer among the keys, as behind a cache that drops
            old ones, and no weight is on it. By default the first key that any row of the batch element sees.

    Returns:
        The output and logsumexp of `attention_with_logsumexp`, and the evidence.

    Raises:
        ArgumentError: an argument has a type, shape, dtype, device or value that is not allowed, or `collect`
            asks for heads or rows that there are none of.

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
    wanted, first = _checked(collect), first_keys(call, first_key)
    route = route_of(call)
    if route.watcher is not None:
        return _by_operations(call, wanted, first)
    if not route.needs_gradient:
        return _observed(call, wanted, first)
    # The backward pass makes the weights again, so that autograd need not keep those that are looked at.
    result = through_operator.attend(call, impl="auto", need_logsumexp=True, is_followed=False)
    with torch.no_grad():
        seen = _observed(call, wanted, first)
    return Observation(*result, seen.evidence)


def _observed(call: Call, collect: Collect, first_key: Tensor) -> Observation:
    if kernel_visit.why_not(call):
        return _by_operations(call, collect, first_key)
    return kernel_visit.observe(call, collect, first_key)


def _by_operations(call: Call, collect: Collect, first_key: Tensor) -> Observation:
    gathering = Gathering(collect, call)
    output, logsumexp = JoinedRows(call.sizes.seq_len), JoinedRows(call.sizes.seq_len)
    for block in plain.blocks(call):
        output.add(block.rows, block.output)
        logsumexp.add(block.rows, block.logsumexp)
        gathering.add(RowFacts.of(block, call, first_key))
    return Observation(output.whole().to(call.query.dtype), logsumexp.whole(), gathering.evidence())


def _checked(collect: Collect | None) -> Collect:
    if collect is None:
        return Collect()
    if not isinstance(collect, Collect):
        raise ArgumentError(
            f"collect={collect!r} is a {type(collect).__name__}; pass a Collect, such as Collect(top_k=8)"
        )
    return collect
