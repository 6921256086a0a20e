"""What `explain two-heads` finds: every matrix on the way from the input to the output, read-only."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.layout import HeadLayout

Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class HeadTrace:
    """The steps of one query head, in the order in which they are taken.

    - w_q, w_k, w_v `[d_model, head_dim]`
    - query, key, value `[seq_len, head_dim]`
    - scores, scaled, masked, weights `[seq_len, seq_len]`; row = query, column = key; -inf where masked
    - output `[seq_len, head_dim]`
    """

    head: int
    kv_head: int
    w_q: Matrix
    w_k: Matrix
    w_v: Matrix
    query: Matrix
    key: Matrix
    value: Matrix
    scores: Matrix
    scaled: Matrix
    masked: Matrix
    weights: Matrix
    output: Matrix

    def __post_init__(self) -> None:
        freeze_matrices(self)


@dataclass(frozen=True, eq=False)
class Explanation:
    """A whole multi-head attention on a few tokens.

    - input `[seq_len, d_model]`, one row a token; `drawn_tokens` names those whose row was drawn, not given
    - concatenated `[seq_len, num_heads * head_dim]`
    - w_o `[num_heads * head_dim, d_model]`
    - output `[seq_len, d_model]`
    """

    tokens: tuple[str, ...]
    drawn_tokens: tuple[str, ...]
    d_model: int
    layout: HeadLayout
    seed: int
    causal: bool
    input: Matrix
    heads: tuple[HeadTrace, ...]
    concatenated: Matrix
    w_o: Matrix
    output: Matrix

    def __post_init__(self) -> None:
        freeze_matrices(self)


def freeze_matrices(result: Any) -> None:
    """Make every array of a result read-only."""
    # A frozen dataclass keeps its attributes, not what is inside an array.
    for field in fields(result):
        if isinstance(found := getattr(result, field.name), np.ndarray):
            found.setflags(write=False)
