"""The two-head example, one step at a time in float64.

Nothing here calls the operator: each step is written out, so that what is shown is what was computed, and the
tests hold the result against `headwise.reference`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from headwise.counts import checked_size
from headwise.errors import ArgumentError
from headwise.layout import HeadLayout
from headwise.verbs.explain.result import Explanation, HeadTrace, Matrix
from headwise.verbs.explain.seeds import checked_seed

GIVEN_ROWS = {
    "cat": (1.0, 0.0, 1.0, 0.0),
    "sat": (0.0, 1.0, 0.0, 1.0),
    "mat": (1.0, 1.0, 0.0, 0.0),
}
MOST_TOKENS = 64
WIDEST = 256
MOST_HEADS = 64

Draw = Callable[[int, int], Matrix]


class _Projections(NamedTuple):
    w_q: Matrix
    w_k: Matrix
    w_v: Matrix


def explain_two_heads(
    *,
    tokens: Sequence[str] = tuple(GIVEN_ROWS),
    d_model: int = 4,
    num_heads: int = 2,
    num_kv_heads: int | None = None,
    head_dim: int | None = None,
    seed: int = 3,
    causal: bool = False,
) -> Explanation:
    """Return every step of multi-head attention on a few tokens: two heads of two, unless asked otherwise.

    One generator, `numpy.random.RandomState(seed)`, gives all random numbers, in this order. For each query
    head its W_Q and, if it is the first to read its KV head, then W_K and W_V; then W_O; each is
    `round(randn * 0.5, 2)`. Last, a row `round(randn, 2)` for each token without a given row, in order of
    first appearance. At `d_model` 4 the tokens cat, sat and mat have given rows. A token that appears twice
    has the same row twice, for no positions are added.

    Args:
        tokens: 1 to 64 tokens.
        d_model: width of a token's row, at most 256.
        num_heads: query heads, at most 64.
        num_kv_heads: heads of key and value; `num_heads` by default.
        head_dim: width of one head, at most 256; `d_model / num_heads` by default.
        seed: of the generator, 0 to 4294967295.
        causal: whether a token sees itself and earlier tokens only.

    Raises:
        ArgumentError: no tokens, too many or an empty one; a size out of range; heads that do not divide.

    Example:
        >>> explain_two_heads().heads[0].weights.round(4)[0]
        array([0.472 , 0.2676, 0.2603])

    Source: Vaswani et al. 2017, section 3.2.2; Ainslie et al. 2023 for shared KV heads.

    """
    tokens = _checked_tokens(tokens)
    d_model = checked_size("d_model", d_model, largest=WIDEST)
    checked_size("num_heads", num_heads, largest=MOST_HEADS)
    if head_dim is not None:
        checked_size("head_dim", head_dim, largest=WIDEST)
    layout = HeadLayout.of_width(d_model, num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim)
    draw = _generator(seed)

    projections = _draw_projections(layout, d_model, draw)
    w_o = _weights(draw(layout.output_width, d_model))
    given = GIVEN_ROWS if d_model == 4 else {}
    drawn = {token: draw(1, d_model)[0].round(2) for token in dict.fromkeys(tokens) if token not in given}
    rows = {**given, **drawn}
    x = np.array([rows[token] for token in tokens])

    heads = tuple(
        _trace(head, layout.kv_head_of(head), x, of_head, causal) for head, of_head in enumerate(projections)
    )
    concatenated = np.concatenate([head.output for head in heads], axis=1)
    return Explanation(
        tokens=tokens,
        drawn_tokens=tuple(drawn),
        d_model=d_model,
        layout=layout,
        seed=seed,
        causal=causal,
        input=x,
        heads=heads,
        concatenated=concatenated,
        w_o=w_o,
        output=concatenated @ w_o,
    )


def _trace(head: int, kv_head: int, x: Matrix, projections: _Projections, causal: bool) -> HeadTrace:
    w_q, w_k, w_v = projections
    query, key, value = x @ w_q, x @ w_k, x @ w_v
    scores = query @ key.T
    scaled = scores / np.sqrt(query.shape[1])
    later = np.triu(np.ones(scores.shape, dtype=bool), k=1)
    masked = np.where(later & causal, -np.inf, scaled)
    weights = _softmax_of_rows(masked)
    return HeadTrace(
        head=head,
        kv_head=kv_head,
        w_q=w_q,
        w_k=w_k,
        w_v=w_v,
        query=query,
        key=key,
        value=value,
        scores=scores,
        scaled=scaled,
        masked=masked,
        weights=weights,
        output=weights @ value,
    )


def _softmax_of_rows(scores: Matrix) -> Matrix:
    # Taking the row's largest score off changes no weight and keeps exp from overflowing.
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def _draw_projections(layout: HeadLayout, d_model: int, draw: Draw) -> list[_Projections]:
    found: list[_Projections] = []
    for head in range(layout.num_heads):
        w_q = _weights(draw(d_model, layout.head_dim))
        if head % layout.group_size == 0:
            w_k = _weights(draw(d_model, layout.head_dim))
            w_v = _weights(draw(d_model, layout.head_dim))
        else:
            w_k, w_v = found[-1].w_k, found[-1].w_v
        found.append(_Projections(w_q, w_k, w_v))
    return found


def _weights(drawn: Matrix) -> Matrix:
    return np.round(drawn * 0.5, 2)


def _generator(seed: int) -> Draw:
    # The legacy generator: the published example was drawn with it.
    return np.random.RandomState(checked_seed(seed)).randn


def _checked_tokens(tokens: Sequence[str]) -> tuple[str, ...]:
    if isinstance(tokens, str):
        raise ArgumentError(f"tokens={tokens!r} is one string; pass a list such as ['cat', 'sat', 'mat']")
    tokens = tuple(tokens)
    if not 1 <= len(tokens) <= MOST_TOKENS:
        raise ArgumentError(f"{len(tokens)} tokens given; pass 1 to {MOST_TOKENS}")
    for position, token in enumerate(tokens):
        if not isinstance(token, str) or not token:
            raise ArgumentError(
                f"token {position} is {token!r}; each of the tokens is a string of at least one character"
            )
    return tokens
