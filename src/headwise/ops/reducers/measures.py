"""The numbers of one row: a function each, named after its field; `headwise.evidence` has the definitions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headwise.ops.reducers.reducer import Measure
from headwise.ops.rows import RowFacts


def entropy(facts: RowFacts) -> Tensor:
    """Return the entropy in nats."""
    return facts.of_seeing_rows(torch.special.entr(facts.weights).sum(-1))


def normalised_entropy(facts: RowFacts) -> Tensor:
    """Return the entropy divided by its largest, that of equal weights."""
    largest = facts.visible_keys.clamp_min(2).to(facts.weights.dtype).log()
    # Times 0, not filled with it: a row of one key that is NaN stays NaN.
    return entropy(facts) / largest * (facts.visible_keys != 1)


def first_token(facts: RowFacts) -> Tensor:
    """Return the weight on the first token."""
    return facts.of_seeing_rows(facts.at_key(facts.first_key[:, None, None])[0])


def previous_token(facts: RowFacts) -> Tensor:
    """Return the weight on the token before the query."""
    return _back(facts, 1)


def self_token(facts: RowFacts) -> Tensor:
    """Return the weight on the query's own token."""
    weight, _ = facts.at_key(facts.positions)
    return facts.of_seeing_rows(weight).masked_fill(facts.positions < 0, torch.nan)


def mean_distance(facts: RowFacts) -> Tensor:
    """Return how far away the keys are on average, in tokens."""
    return facts.of_seeing_rows((facts.weights * facts.distances).sum(-1))


def local(window: int) -> Measure:
    """Return the measure of the weight on keys at most `window` tokens away."""
    return lambda facts: facts.of_seeing_rows((facts.weights * (facts.distances <= window)).sum(-1))


def visible(facts: RowFacts) -> Tensor:
    """Return whether the row sees any key."""
    return facts.visible


def sink(facts: RowFacts) -> Tensor:
    """Return what the layer's learned sink took."""
    return facts.of_seeing_rows(facts.sink)


def weights(facts: RowFacts) -> Tensor:
    """Return the weights themselves."""
    return facts.weights


def at_offsets(offsets: Sequence[int]) -> Measure:
    """Return the measure of the weights at distances back from the query, `[batch, heads, rows, offsets]`."""
    return lambda facts: torch.stack([_back(facts, offset) for offset in offsets], dim=-1)


def _back(facts: RowFacts, offset: int) -> Tensor:
    weight, seen = facts.at_key(facts.positions - offset)
    return weight.masked_fill(~seen, torch.nan)
