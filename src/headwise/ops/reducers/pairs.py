"""The reducer that compares heads."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headwise.ops.joining import JoinedRows
from headwise.ops.reducers.reducer import Reducer
from headwise.ops.rows import RowFacts


class Divergence(Reducer):
    """How far apart the rows of two heads are, by pair of heads; it is shown every head."""

    def __init__(self, pairs: Sequence[tuple[int, int]], seq_len: int) -> None:
        self._pairs = pairs
        self._found = JoinedRows(seq_len)

    def add(self, facts: RowFacts) -> None:
        """Compare the rows of the block, a pair at a time."""
        apart = [self._apart(facts, first, second) for first, second in self._pairs]
        self._found.add(facts.rows, torch.stack(apart, dim=1))

    def fields(self) -> dict[str, Tensor]:
        """Return the divergences, `[batch, pairs, seq_len]`."""
        return {"divergence": self._found.whole()}

    @staticmethod
    def _apart(facts: RowFacts, first: int, second: int) -> Tensor:
        apart = jensen_shannon(facts.weights[:, first], facts.weights[:, second]).sum(-1)
        apart = apart + jensen_shannon(facts.sink[:, first], facts.sink[:, second])
        both_see = facts.visible[:, first] & facts.visible[:, second]
        # Rounding may leave a hair below nothing.
        return apart.clamp_min(0.0).masked_fill(~both_see, torch.nan)


def jensen_shannon(first: Tensor, second: Tensor) -> Tensor:
    """Return what each outcome adds to the divergence of two distributions, in nats."""
    # Where both are 0 there is nothing to divide by; xlogy makes 0 of 0 times any logarithm.
    mean = ((first + second) / 2).clamp_min(torch.finfo(first.dtype).tiny)
    return (torch.xlogy(first, first / mean) + torch.xlogy(second, second / mean)) / 2
