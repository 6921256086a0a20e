"""One small reducer for each thing `observe` reports; `headwise.evidence` has the definitions.

A reducer is shown the exact weights of one block of rows after the other and keeps only its own numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from headwise.evidence import Collect
from headwise.ops.arguments import Call
from headwise.ops.joining import JoinedRows
from headwise.ops.rows import RowFacts


class Reducer(ABC):
    """Takes in blocks of rows in order and gives fields of `Evidence`."""

    @abstractmethod
    def add(self, facts: RowFacts) -> None:
        """Take in the next block of rows."""

    @abstractmethod
    def fields(self) -> dict[str, Tensor]:
        """Return what was gathered from all rows."""


class PerRow(Reducer):
    """Anything that a row has on its own; the rows of all blocks are joined along `seq_len`."""

    def __init__(self, name: str, measure: Callable[[RowFacts], Tensor], call: Call) -> None:
        self._name = name
        self._measure = measure
        self._found = JoinedRows(call.sizes.seq_len)

    def add(self, facts: RowFacts) -> None:
        """Measure the block."""
        self._found.add(facts.rows, self._measure(facts))

    def fields(self) -> dict[str, Tensor]:
        """Return the one field."""
        return {self._name: self._found.whole()}


class TopKeys(Reducer):
    """The largest weights of each row and their keys; 0 and -1 past the keys that the row sees."""

    def __init__(self, count: int, call: Call) -> None:
        self._count = min(count, call.sizes.kv_len)
        self._weights, self._keys = JoinedRows(call.sizes.seq_len), JoinedRows(call.sizes.seq_len)

    def add(self, facts: RowFacts) -> None:
        """Pick the largest weights of each row of the block."""
        found = facts.weights.masked_fill(facts.hidden, -1.0).topk(self._count, dim=-1)
        missing = found.values == -1.0
        self._weights.add(facts.rows, found.values.masked_fill(missing, 0.0))
        self._keys.add(facts.rows, found.indices.masked_fill(missing, -1))

    def fields(self) -> dict[str, Tensor]:
        """Return weights and keys, `[batch, num_heads, seq_len, top_k]`."""
        return {"top_weights": self._weights.whole(), "top_keys": self._keys.whole()}


class PooledMap(Reducer):
    """The mean over a cell's rows of the mass on its keys; rows that see no key are left out of the mean."""

    def __init__(self, size: int, call: Call) -> None:
        sizes, device, dtype = call.sizes, call.query.device, call.compute_dtype
        self._row_cells = _cells(sizes.seq_len, size, device)
        self._key_cells = _cells(sizes.kv_len, size, device)
        shape = (sizes.batch, sizes.num_heads, min(size, sizes.seq_len), min(size, sizes.kv_len))
        self._mass = torch.zeros(shape, dtype=dtype, device=device)
        self._rows = torch.zeros(shape[:3], dtype=dtype, device=device)

    def add(self, facts: RowFacts) -> None:
        """Add the block's mass to its cells."""
        pooled = facts.weights.new_zeros((*facts.weights.shape[:3], self._mass.shape[3]))
        pooled.index_add_(3, self._key_cells, facts.weights)
        self._mass.index_add_(2, self._row_cells[facts.rows], pooled)
        self._rows.index_add_(2, self._row_cells[facts.rows], facts.visible.to(self._rows.dtype))

    def fields(self) -> dict[str, Tensor]:
        """Return the means; 0 where no row of a cell sees a key."""
        return {"map": self._mass / self._rows.clamp_min(1.0)[..., None]}


def _cells(length: int, size: int, device: torch.device) -> Tensor:
    """Return the cell of each of `length` places, at most `size` cells of nearly equal width."""
    return torch.arange(length, device=device) * min(size, length) // max(1, length)


def reducers_for(collect: Collect, call: Call) -> list[Reducer]:
    """Return the reducers that fill what `collect` asks for."""
    measures: dict[str, Callable[[RowFacts], Tensor]] = {
        "entropy": _entropy,
        "first_token": _first_token,
        "previous_token": _previous_token,
        "self_token": _self_token,
        "mean_distance": _mean_distance,
        "visible": lambda facts: facts.visible,
    }
    if call.sinks is not None:
        sinks = call.sinks.detach()[:, None]
        measures["sink"] = lambda facts: facts.of_seeing_rows(torch.exp(sinks - facts.logsumexp))
    if collect.weights:
        measures["weights"] = lambda facts: facts.weights
    reducers: list[Reducer] = [PerRow(name, measure, call) for name, measure in measures.items()]
    if collect.map_size is not None:
        reducers.append(PooledMap(collect.map_size, call))
    if collect.top_k is not None:
        reducers.append(TopKeys(collect.top_k, call))
    return reducers


def _entropy(facts: RowFacts) -> Tensor:
    return facts.of_seeing_rows(torch.special.entr(facts.weights).sum(-1))


def _first_token(facts: RowFacts) -> Tensor:
    weight, _ = facts.at_key(facts.first_key[:, None, None])
    return facts.of_seeing_rows(weight)


def _previous_token(facts: RowFacts) -> Tensor:
    weight, seen = facts.at_key(facts.positions - 1)
    return weight.masked_fill(~seen, torch.nan)


def _self_token(facts: RowFacts) -> Tensor:
    weight, _ = facts.at_key(facts.positions)
    return facts.of_seeing_rows(weight).masked_fill(facts.positions < 0, torch.nan)


def _mean_distance(facts: RowFacts) -> Tensor:
    keys = torch.arange(facts.weights.shape[-1], device=facts.weights.device)
    distance = (facts.positions[:, None] - keys).abs().to(facts.weights.dtype)
    return facts.of_seeing_rows((facts.weights * distance).sum(-1))
