"""Everything that one call of `observe` collects."""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.evidence import Collect, Evidence
from headwise.ops.arguments import Call
from headwise.ops.reducers import measures
from headwise.ops.reducers.keys import ChosenRows, LargestKey, PooledMap, Received, TopKeys
from headwise.ops.reducers.pairs import Divergence
from headwise.ops.reducers.reducer import Measure, PerRow, Reducer
from headwise.ops.rows import RowFacts


class Gathering:
    """Shows each block of rows to all that is collected and puts the evidence together.

    Raises:
        ArgumentError: a head, pair or row is asked for that the call does not have.

    """

    def __init__(self, collect: Collect, call: Call) -> None:
        heads, pairs = collect.heads_of(call.sizes.num_heads), collect.pairs_of(call.sizes.num_heads)
        self._heads = heads if collect.heads is not None else None
        self._index = torch.tensor(heads, device=call.query.device)
        self._of_reported = _of_reported_heads(collect, call, len(heads))
        self._of_all: list[Reducer] = [Divergence(pairs, call.sizes.seq_len)] if pairs else []

    def add(self, facts: RowFacts) -> None:
        """Take in the next block of rows, of every head."""
        for reducer in self._of_all:
            reducer.add(facts)
        reported = facts if self._heads is None else facts.of_heads(self._index)
        for reducer in self._of_reported:
            reducer.add(reported)

    def evidence(self) -> Evidence[Tensor]:
        """Return what was found in all rows."""
        reducers = [*self._of_reported, *self._of_all]
        fields = {name: found for reducer in reducers for name, found in reducer.fields().items()}
        return Evidence(**fields, heads=self._heads)


def _of_reported_heads(collect: Collect, call: Call, num_heads: int) -> list[Reducer]:
    seq_len = call.sizes.seq_len
    reducers: list[Reducer] = [
        PerRow(name, measure, seq_len) for name, measure in _measures(collect, call).items()
    ]
    reducers.append(LargestKey(seq_len))
    if collect.map_size is not None:
        reducers.append(PooledMap(collect.map_size, call, num_heads))
    if collect.top_k is not None:
        reducers.append(TopKeys(collect.top_k, call))
    if collect.rows:
        reducers.append(ChosenRows(collect.rows_of(seq_len), call, num_heads))
    if collect.received:
        reducers.append(Received(call, num_heads))
    return reducers


def _measures(collect: Collect, call: Call) -> dict[str, Measure]:
    """Return what is collected of each row, by the name of its field."""
    wanted: dict[str, Measure] = {
        "entropy": measures.entropy,
        "normalised_entropy": measures.normalised_entropy,
        "first_token": measures.first_token,
        "previous_token": measures.previous_token,
        "self_token": measures.self_token,
        "mean_distance": measures.mean_distance,
        "local": measures.local(collect.local_window),
        "visible": measures.visible,
    }
    if call.sinks is not None:
        wanted["sink"] = measures.sink
    if collect.weights:
        wanted["weights"] = measures.weights
    if collect.offsets:
        wanted["at_offsets"] = measures.at_offsets(collect.offsets)
    return wanted
