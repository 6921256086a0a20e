"""The weights of the toy model, each one computed from what its head is to do.

The residual stream has five parts (`_Parts`): the token's own code, the code of the token before it (written
by the previous-token head), the code found by induction (written by the induction head), a constant 1, and a
flag that is 1 at the first token and -1 elsewhere. After each layer the stream has a known length, so the
weight of the norm before the next one undoes that norm. Feed-forward weights are 0.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headwise.models.toy_induction.codes import CODE_LENGTH, MAX_OVERLAP, sign_codes

Matrix = NDArray[np.float32]

HEADS, HEAD_DIM = 4, 64
PREVIOUS_TOKEN_HEAD = (0, 1)
INDUCTION_HEAD = (1, 2)
"""The layer and head of the two heads that do something."""

ROPE_THETA = 10000.0
MAX_POSITIONS = 2048
NORM_EPSILON = 1e-6
D_MODEL = 3 * CODE_LENGTH + 2

_TOKEN = slice(0, CODE_LENGTH)
_PREVIOUS = slice(CODE_LENGTH, 2 * CODE_LENGTH)
_FOUND = slice(2 * CODE_LENGTH, 3 * CODE_LENGTH)
_ONE, _FLAG = D_MODEL - 2, D_MODEL - 1

_LEAD = 30.0
"""By how much the score of the key that a head is to see exceeds that of any other, in nats."""

_MISS = 0.01
"""The probability left to all wrong tokens together where induction finds one match."""

_FREQUENCIES = 8
"""How many of the rotary frequencies a positional head uses, the fastest ones."""


class _Head(NamedTuple):
    """What a head reads and writes: each `[HEAD_DIM, D_MODEL]`, `output` `[D_MODEL, HEAD_DIM]`."""

    query: Matrix
    key: Matrix
    value: Matrix
    output: Matrix


def toy_weights(vocab_size: int) -> dict[str, Matrix]:
    """Return the model's weights by their names in transformers; token 0 is the first token of every text.

    Args:
        vocab_size: how many tokens there are, at most `codes.MAX_CODES`.

    """
    codes = sign_codes()[:vocab_size]
    first = codes[0]
    layers = (
        (_at_distance(2), _previous_token(), _sink_at_lowest_frequency(), _at_distance(0)),
        (_uniform(), _sink(), _induction(first), _all_but_first()),
    )
    weights = {
        "model.embed_tokens.weight": _embedding(codes),
        # The stream holds a code for each part that is filled by then, the constant and the flag.
        "model.norm.weight": _norm_weight(codes_held=3),
        "lm_head.weight": _unembedding(codes),
    }
    for number, heads in enumerate(layers):
        name = f"model.layers.{number}"
        weights |= {
            f"{name}.input_layernorm.weight": _norm_weight(codes_held=1 + number),
            f"{name}.self_attn.q_proj.weight": np.concatenate([head.query for head in heads]),
            f"{name}.self_attn.k_proj.weight": np.concatenate([head.key for head in heads]),
            f"{name}.self_attn.v_proj.weight": np.concatenate([head.value for head in heads]),
            f"{name}.self_attn.o_proj.weight": np.concatenate([head.output for head in heads], axis=1),
            f"{name}.post_attention_layernorm.weight": np.ones(D_MODEL, np.float32),
            f"{name}.mlp.gate_proj.weight": np.zeros((1, D_MODEL), np.float32),
            f"{name}.mlp.up_proj.weight": np.zeros((1, D_MODEL), np.float32),
            f"{name}.mlp.down_proj.weight": np.zeros((D_MODEL, 1), np.float32),
        }
    return weights


def rotary_frequencies() -> NDArray[np.float64]:
    """Return the angle by which each pair of entries turns per token, `[HEAD_DIM / 2]`, fastest first."""
    return ROPE_THETA ** (-2 * np.arange(HEAD_DIM // 2) / HEAD_DIM)


def _embedding(codes: Matrix) -> Matrix:
    table = np.zeros((len(codes), D_MODEL), np.float32)
    table[:, _TOKEN] = codes
    table[:, _ONE], table[:, _FLAG] = 1, -1
    table[0, _FLAG] = 1
    return table


def _norm_weight(*, codes_held: int) -> Matrix:
    mean_square = (codes_held * CODE_LENGTH + 2) / D_MODEL
    return np.full(D_MODEL, math.sqrt(mean_square + NORM_EPSILON), np.float32)


def _unembedding(codes: Matrix) -> Matrix:
    lead = math.log(len(codes) / _MISS)
    table = np.zeros((len(codes), D_MODEL), np.float32)
    table[:, _FOUND] = codes * (lead / (CODE_LENGTH - MAX_OVERLAP))
    return table


def _uniform() -> _Head:
    """Look at everything alike and add nothing; the other heads start from this one."""
    query, key, value = np.zeros((3, HEAD_DIM, D_MODEL), np.float32)
    return _Head(query, key, value, output=np.zeros((D_MODEL, HEAD_DIM), np.float32))


def _at_distance(tokens: int) -> _Head:
    """Look at the token so many places back: the score is a sum of cosines that all peak there."""
    head, angles = _uniform(), rotary_frequencies()[:_FREQUENCIES]
    # What one place beside the peak costs; every other place costs more.
    step = float((1 - np.cos(angles)).sum())
    strength = _LEAD / step * math.sqrt(HEAD_DIM)
    # A pair of entries turns with its position. The query is turned back by the distance.
    pairs = np.arange(_FREQUENCIES)
    head.query[pairs, _ONE] = strength * np.cos(tokens * angles)
    head.query[pairs + HEAD_DIM // 2, _ONE] = -strength * np.sin(tokens * angles)
    head.key[pairs, _ONE] = 1
    return head


def _previous_token() -> _Head:
    """Look at the previous token and write down which one it was."""
    head, entries = _at_distance(1), np.arange(CODE_LENGTH)
    head.value[entries, entries + _TOKEN.start] = 1
    head.output[entries + _PREVIOUS.start, entries] = 1
    return head


def _sink(entry: int = 0, sign: int = 1) -> _Head:
    """Look at the first token, which alone has the flag; with the sign turned, at all others alike."""
    head = _uniform()
    # The flags lie 2 apart.
    head.query[entry, _ONE] = _LEAD / 2 * math.sqrt(HEAD_DIM)
    head.key[entry, _FLAG] = sign
    return head


def _sink_at_lowest_frequency() -> _Head:
    """Look at the first token whatever its distance: the slowest pair turns by 0.27 in 2,048 places."""
    return _sink(entry=HEAD_DIM // 2 - 1)


def _all_but_first() -> _Head:
    return _sink(sign=-1)


def _induction(first: Matrix) -> _Head:
    """Look at the keys that follow an earlier occurrence of the current token, and write down what they are.

    A key answers with the code of the token before it. The first token of the text answers everybody alike,
    half way between a match and the best of the others, so that a token without an earlier occurrence rests
    there; nothing is written down then, since the first token's value is 0.

    Args:
        first: the code of the first token.

    """
    head, entries = _uniform(), np.arange(CODE_LENGTH)
    half_way = (CODE_LENGTH - MAX_OVERLAP) / 2
    strength = _LEAD / half_way * math.sqrt(HEAD_DIM)
    head.query[entries, entries + _TOKEN.start] = strength
    head.key[entries, entries + _PREVIOUS.start] = 1
    head.query[CODE_LENGTH, _ONE] = strength
    # The flags lie 2 apart.
    head.key[CODE_LENGTH, _FLAG] = (MAX_OVERLAP + half_way) / 2
    head.value[entries, entries + _TOKEN.start] = 1
    # (1 + flag) / 2 is 1 at the first token and 0 elsewhere: there its code is taken away again.
    for part in (head.key, head.value):
        part[entries, _ONE] = part[entries, _FLAG] = -first / 2
    head.output[entries + _FOUND.start, entries] = 1
    return head
