"""The definition of attention, in float64 NumPy.

Everything else in headwise is held to this file, so it is written to be read, not to be fast. Hidden keys are
not masked out but never touched: each row is computed from the keys it sees and from nothing else.

For query head h, which reads KV head `h // group_size`, and for the keys j that row i sees:

    score_j   = scale * query_i . key_j                      Vaswani et al. 2017, equation 1
    score_j   = softcap * tanh(score_j / softcap)            Gemma 2 report, section 2
    score_j   = score_j + bias_j
    logsumexp = log( sum_j exp(score_j) + exp(sink_h) )      the sink joins the denominator only
    weight_j  = exp(score_j - logsumexp)
    output_i  = head_gate_h * sum_j weight_j value_j

A row that sees no key has output 0, weights 0 and logsumexp -inf. A head whose gate is 0 has output 0,
whatever it holds. An infinite value counts wherever it is seen, since every weight is above 0 however small.
A row with a score, bias or sink of +inf has no softmax: logsumexp is inf, weights and output are NaN.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headwise import masks

Float64 = NDArray[np.float64]


class ReferenceResult(NamedTuple):
    """What `attention` returns, all float64.

    - output `[batch, num_heads, seq_len, value_head_dim]`
    - logsumexp `[batch, num_heads, seq_len]`, natural
    - weights `[batch, num_heads, seq_len, kv_len]`, 0 at hidden keys
    """

    output: Float64
    logsumexp: Float64
    weights: Float64


def attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    *,
    mask: Any = None,
    bias: ArrayLike | masks.Dense | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: ArrayLike | None = None,
    head_gates: ArrayLike | None = None,
) -> ReferenceResult:
    """Return attention by its definition.

    Args:
        query: `[batch, num_heads, seq_len, head_dim]`.
        key: `[batch, num_kv_heads, kv_len, head_dim]`.
        value: `[batch, num_kv_heads, kv_len, value_head_dim]`.
        mask: a mask object of `headwise.masks`, a boolean or float array, or None.
        bias: float array added to the scores, its shape read as a mask's is; -inf hides.
        scale: multiplies `query . key`; `head_dim ** -0.5` by default.
        softcap: bound of the soft-capped scores, or None.
        sinks: one logit per query head, `[num_heads]`.
        head_gates: one factor per query head, `[num_heads]` or `[batch, num_heads]`.

    Example:
        >>> one_key = np.ones((1, 1, 1, 2))
        >>> attention(one_key, one_key, 3 * one_key).output
        array([[[[3., 3.]]]])

    """
    query, key, value = (np.asarray(given, dtype=np.float64) for given in (query, key, value))
    batch, num_heads, seq_len, head_dim = query.shape
    num_kv_heads, kv_len, value_head_dim = value.shape[1:]
    sizes = masks.Sizes(batch, num_heads, seq_len, kv_len)
    visible, added = visible_and_bias(mask, bias, sizes)
    scale = head_dim**-0.5 if scale is None else scale
    sink_of = np.full(num_heads, -np.inf) if sinks is None else np.asarray(sinks, dtype=np.float64)
    gates = np.ones((1, num_heads)) if head_gates is None else np.asarray(head_gates, dtype=np.float64)
    gates = np.broadcast_to(gates, (batch, num_heads))

    output = np.zeros((batch, num_heads, seq_len, value_head_dim))
    logsumexp = np.full((batch, num_heads, seq_len), -np.inf)
    weights = np.zeros((batch, num_heads, seq_len, kv_len))
    for b, h, i in np.ndindex(batch, num_heads, seq_len):
        seen = np.flatnonzero(visible[b, h, i])
        if seen.size == 0:
            continue
        kv_head = h // (num_heads // num_kv_heads)
        with np.errstate(invalid="ignore", over="ignore"):  # NaN and inf in visible places are the user's own
            scores = scale * (key[b, kv_head, seen] @ query[b, h, i])
            if softcap is not None:
                scores = softcap * np.tanh(scores / softcap)
            # A number taken off a whole row changes no weight, so scores keep their digits beside any bias.
            raised = max(added[b, h, i, seen].max(), sink_of[h])
            raised = raised if np.isfinite(raised) else 0.0
            scores = scores + (added[b, h, i, seen] - raised)
            with_sink = np.append(scores, sink_of[h] - raised)
            logsumexp[b, h, i] = _logsumexp(with_sink) + raised
            weights[b, h, i, seen] = _softmax(with_sink)[:-1]
            if gates[b, h] != 0.0:
                output[b, h, i] = gates[b, h] * _weighted_sum(weights[b, h, i, seen], value[b, kv_head, seen])
    return ReferenceResult(output, logsumexp, weights)


def visible_and_bias(
    mask: Any, bias: ArrayLike | masks.Dense | None, sizes: masks.Sizes
) -> tuple[NDArray[np.bool_], Float64]:
    """Return which keys each row sees and what is added to their scores.

    Both are `[batch, num_heads, seq_len, kv_len]`.
    -inf in a float mask or bias hides a key; anything finite, however negative, is added.
    """
    full = (sizes.batch, sizes.num_heads, sizes.seq_len, sizes.kv_len)
    resolved = masks.resolve(mask, sizes)
    dense = [("mask", part) for part in resolved.dense]
    if bias is not None:
        dense.append(("bias", bias if isinstance(bias, masks.Dense) else masks.Dense(np.asarray(bias))))
    visible = np.broadcast_to(resolved.intervals.visible(sizes.kv_len)[:, None], full).copy()
    added = np.zeros(full)
    for name, part in dense:
        tensor = np.asarray(part.tensor)
        tensor = tensor.reshape(masks.broadcast_shape(name, tensor.shape, part.axes, sizes))
        if part.is_boolean:
            visible &= tensor
        else:
            visible &= tensor != -np.inf
            finite = np.where(tensor == -np.inf, 0.0, tensor)
            with np.errstate(over="ignore"):  # two of the lowest number add up to it, and hide nothing
                added = np.maximum(added + finite, np.finfo(np.float64).min)
    return visible, added


def _logsumexp(scores: Float64) -> np.float64:
    largest = scores.max()
    if not np.isfinite(largest):
        return np.float64(np.nan if np.isnan(scores).any() else largest)
    return np.float64(largest + np.log(np.exp(scores - largest).sum()))


def _softmax(scores: Float64) -> Float64:
    # Not exp(score - logsumexp): at scores of 1e30 the logarithm of the sum is lost beside the largest score.
    raised = np.exp(scores - scores.max())
    shares: Float64 = raised / raised.sum()
    return shares


def _weighted_sum(weights: Float64, values: Float64) -> Float64:
    # A weight may be 0 only because it is too small for float64, and 0 times infinity would be NaN.
    finite = np.isfinite(values)
    infinite = np.where(finite, 0.0, values).sum(axis=0)
    summed: Float64 = weights @ np.where(finite, values, 0.0) + infinite
    return summed
