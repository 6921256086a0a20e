"""Softmax over scores of drawn queries and keys, with and without the division by sqrt(head_dim)."""

from __future__ import annotations

import numpy as np

from headwise.verbs.explain.bank.result import ScalePoint, Spread
from headwise.verbs.explain.bank.routing import softmax
from headwise.verbs.explain.result import Matrix

HEAD_DIMS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
DRAWS = 400
KEYS = 32
AT_ONCE = 50
"""Queries drawn together: at width 1,024 their keys take 13 MB."""


def measure(head_dim: int, random: np.random.Generator) -> ScalePoint:
    """Return entropy and gradient of the softmax at one width; queries and keys are standard normal."""
    scores = np.concatenate([_scores(head_dim, random) for _ in range(DRAWS // AT_ONCE)])
    plain, scaled = softmax(scores), softmax(scores / np.sqrt(head_dim))
    return ScalePoint(
        head_dim=head_dim,
        deviation=float(scores.std()),
        entropy=_spread(entropy(plain)),
        entropy_scaled=_spread(entropy(scaled)),
        gradient=_spread(gradient_norm(plain)),
        gradient_scaled=_spread(gradient_norm(scaled)),
    )


def entropy(weights: Matrix) -> Matrix:
    """Return the entropy of each row in nats; a weight of 0 adds nothing."""
    logarithms = np.log(np.where(weights > 0, weights, 1.0))
    return -(weights * logarithms).sum(axis=-1)


def gradient_norm(weights: Matrix) -> Matrix:
    """Return the Frobenius norm of the derivatives of a softmax by its scores, for each row of weights.

    The derivative of weight i by score j is `w_i (i == j) - w_i w_j`; the sum of their squares is
    `sum w^2 - 2 sum w^3 + (sum w^2)^2`. It is 0 where one weight is 1: nothing that is learned moves it.
    """
    squares, cubes = (weights**2).sum(axis=-1), (weights**3).sum(axis=-1)
    # At a weight of nearly 1 rounding may leave a little below 0.
    return np.sqrt(np.maximum(squares - 2 * cubes + squares**2, 0.0))


def _scores(head_dim: int, random: np.random.Generator) -> Matrix:
    query = random.standard_normal((AT_ONCE, head_dim))
    key = random.standard_normal((AT_ONCE, KEYS, head_dim))
    return np.einsum("nd,nkd->nk", query, key)


def _spread(measured: Matrix) -> Spread:
    low, median, high = np.percentile(measured, (10, 50, 90))
    return Spread(float(low), float(median), float(high))
