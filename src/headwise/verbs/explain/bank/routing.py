"""Heads that look from "bank": what they ask for, what comes back, and how much of it can be told apart.

A token's row has two halves: its role in the sentence, one of four, and its content. Queries and keys are
made of roles, values of contents, so that the weights are the same in every sentence while contents change.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headwise.verbs.explain.bank.result import BankHead, Mix, Routing
from headwise.verbs.explain.result import Matrix

TOKENS = ("The", "bank", "raised", "rates")
ASKING = "bank"
WANTED = ("raised", "rates")
CONTENT_WIDTH = 4
D_MODEL = len(TOKENS) + CONTENT_WIDTH
STRENGTH = 4.0
SENTENCES = 4_000
_PLACES = [TOKENS.index(token) for token in WANTED]


def route(wishes: Sequence[tuple[float, float]], sentence: Matrix, sentences: Matrix) -> Routing:
    """Return what heads bring that share the width of the model.

    Args:
        wishes: for each head how strongly it asks for each of the two wanted tokens.
        sentence: contents, `[tokens, content_width]`.
        sentences: contents of drawn sentences: the first half to fit the best output projection on, the
            second to measure it, `[sentences, tokens, content_width]`.

    """
    head_dim = D_MODEL // len(wishes)
    heads = tuple(_head(each, head_dim, sentence) for each in wishes)
    weights = np.stack([head.weights for head in heads])
    fitted, held_out = np.split(_concatenated(weights, sentences), 2)
    contents, unseen = np.split(sentences.reshape(len(sentences), -1), 2)
    best_w_o, *_ = np.linalg.lstsq(fitted, contents, rcond=None)
    missed = (held_out @ best_w_o - unseen).reshape(-1, *sentence.shape)
    measured = 1 - (missed**2).sum(axis=(0, 2)) / (unseen.reshape(missed.shape) ** 2).sum(axis=(0, 2))
    told = (_concatenated(weights, sentence[None]) @ best_w_o).reshape(sentence.shape)
    return Routing(heads=heads, delivered=told[_PLACES], measured=measured, exact=shares_told(weights))


def mixed(second: float) -> Mix:
    """Return one head that asks for the second wish with `second` and for the first with the rest of 1.

    At one half it asks for both as strongly as `route` lets one head ask.
    """
    scaled = np.zeros(len(TOKENS))
    # Twice the share of the strength: (0.5, 0.5) is what asking for both in full is.
    scaled[_PLACES] = 2 * STRENGTH * np.array([1 - second, second])
    weights = softmax(scaled)
    return Mix(second=second, weights=weights, exact=shares_told(weights[None])[_PLACES])


def shares_told(weights: Matrix) -> Matrix:
    """Return the share of each token's content that outputs of heads tell, `[tokens]`.

    Where contents are independent and of one variance, the best linear guess of them from the heads' outputs
    projects onto the rows of `weights`; the share of a token is its place on the diagonal of that projection.
    A projection's diagonal adds up to its rank: as many tokens' worth as there are heads that differ.

    Args:
        weights: of the query's row, `[heads, tokens]`.

    Example:
        >>> shares_told(np.array([[0.0, 0.0, 0.5, 0.5]]))
        array([0. , 0. , 0.5, 0.5])

    """
    return np.diagonal(np.linalg.pinv(weights) @ weights).copy()


def softmax(scores: Matrix) -> Matrix:
    """Return the softmax over the last axis."""
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


def _head(wishes: tuple[float, float], head_dim: int, sentence: Matrix) -> BankHead:
    """Return one head: its query asks for roles, its keys say them, its values are the contents."""
    rows = np.concatenate([np.eye(len(TOKENS)), sentence], axis=1)
    w_q, w_k = np.zeros((D_MODEL, head_dim)), np.zeros((D_MODEL, head_dim))
    # So much that the division by sqrt(head_dim) leaves the same strength in a wide head and in a narrow one.
    w_q[TOKENS.index(ASKING), _PLACES] = STRENGTH * np.sqrt(head_dim) * np.array(wishes)
    w_k[range(len(TOKENS)), range(len(TOKENS))] = 1.0
    query, key = rows[TOKENS.index(ASKING)] @ w_q, rows @ w_k
    scaled = key @ query / np.sqrt(head_dim)
    weights = softmax(scaled)
    asked = tuple(token for token, strength in zip(WANTED, wishes, strict=True) if strength)
    return BankHead(
        wishes=asked,
        head_dim=head_dim,
        query=query,
        key=key,
        scaled=scaled,
        weights=weights,
        output=weights @ sentence,
    )


def _concatenated(weights: Matrix, sentences: Matrix) -> Matrix:
    """Return the heads' outputs side by side, `[sentences, heads * content_width]`."""
    # [sentences, heads, content_width]
    outputs = np.einsum("ht,stc->shc", weights, sentences)
    return outputs.reshape(len(sentences), -1)
