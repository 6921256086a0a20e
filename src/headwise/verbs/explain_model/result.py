"""What `explain MODEL` finds: one call traced from text to next token, frozen, every array read-only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headwise.models.tokens import Token
from headwise.verbs.explain.result import Matrix, freeze_matrices


@dataclass(frozen=True, eq=False)
class HeadRow:
    """The row of one query in one head, in float64 from the tensors that the attention call was given.

    - scores: `query . key`; scaled: times the scale, and bounded by the softcap where there is one
    - added: a bias, such as one by distance, or None
    - visible: which keys the mask lets the query see
    - weights: 0 where hidden; sink: the weight that a learned sink takes, or None
    - output `[value_head_dim]`: the head's, as the model computed it
    - output_difference: largest difference of `weights @ value` from it

    All but `output` are `[kv_len]`.
    """

    scale: float
    softcap: float | None
    scores: Matrix
    scaled: Matrix
    added: Matrix | None
    visible: NDArray[np.bool_]
    weights: Matrix
    sink: float | None
    output: Matrix
    output_difference: float

    def __post_init__(self) -> None:
        freeze_matrices(self)


@dataclass(frozen=True)
class NextToken:
    """One of the likeliest next tokens; the logit is the model's own, scaled or bounded if it does that."""

    id: int
    text: str
    logit: float
    probability: float


@dataclass(frozen=True, eq=False)
class LayerParts:
    """What one layer adds to a logit directly: each head, the bias of the output projection, the MLP."""

    layer: int
    heads: Matrix
    bias: float
    mlp: float

    def __post_init__(self) -> None:
        freeze_matrices(self)


@dataclass(frozen=True)
class LogitParts:
    """What each part of the model adds directly to the logit of the likeliest next token.

    The final norm divides by one number, which is held at what it is here; so the logit is a sum over parts.

    - embedding: what the first layer reads; constant: the biases of the final norm and of the unembedding
    - norm_scale: what the final norm multiplies with
    - logit: as the unembedding gave it, before a model scales or bounds it; difference: of the sum of all
      parts from it
    - residual_difference: largest difference of embedding + heads + biases + MLPs from what the final norm
      read
    """

    embedding: float
    layers: tuple[LayerParts, ...]
    constant: float
    norm_name: str
    norm_scale: float
    logit: float
    difference: float
    residual_difference: float

    @property
    def heads_total(self) -> float:
        """The sum over all heads of all layers."""
        return float(sum(layer.heads.sum() for layer in self.layers))

    @property
    def biases_total(self) -> float:
        """The sum over the biases of all output projections."""
        return sum(layer.bias for layer in self.layers)

    @property
    def mlps_total(self) -> float:
        """The sum over the MLPs of all layers."""
        return sum(layer.mlp for layer in self.layers)

    @property
    def total(self) -> float:
        """The sum over all parts."""
        return self.embedding + self.heads_total + self.biases_total + self.mlps_total + self.constant


@dataclass(frozen=True, eq=False)
class ModelTrace:
    """One head of one layer on one text, from the token at `position`.

    - query, key `[seq_len, head_dim]`, value `[seq_len, value_head_dim]`: as the attention call gets them
    - projection: path of the output projection's module
    - added `[num_heads, d_model]`: what each head of the layer adds to the block's output at the position
    - bias `[d_model]` of the output projection, or None; block `[d_model]`: the block's output there
    - sum_difference: largest difference, over all positions, of the sum over heads and bias from the block's
      output
    - next_tokens: the likeliest after the position, first the one whose logit is taken apart; none of
      an encoder
    - logit: the parts of that logit; None where it is no sum, and then `no_logit` says why
    - max_logit_difference: from eager attention, on a probe
    """

    model: str
    family: str
    text: str
    tokens: tuple[Token, ...]
    position: int
    layer: int
    layer_name: str
    num_layers: int
    head: int
    kv_head: int
    num_heads: int
    num_kv_heads: int
    query: Matrix
    key: Matrix
    value: Matrix
    row: HeadRow
    projection: str
    added: Matrix
    bias: Matrix | None
    block: Matrix
    sum_difference: float
    next_tokens: tuple[NextToken, ...]
    logit: LogitParts | None
    no_logit: str | None
    max_logit_difference: float

    def __post_init__(self) -> None:
        freeze_matrices(self)
