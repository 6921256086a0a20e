"""One small reducer for each thing `observe` reports; definitions in `headwise.evidence`.

A reducer is shown the exact weights of one block of rows after the other and keeps only its own numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.evidence import Collect
from headwise.ops.arguments import Call
from headwise.ops.plain import RowBlock


@dataclass(frozen=True)
class RowFacts:
    """What reducers see of one block of rows.

    - weights `[batch, num_heads, rows, kv_len]`
    - hidden: boolean, same shape
    - visible `[batch, num_heads, rows]`: whether the row sees any key
    - sink `[batch, num_heads, rows]`: what a learned sink took, or None
    - positions `[rows]`: the key position at which each query stands
    - first_key `[batch]`: the first key that any row sees
    """

    rows: slice
    weights: Tensor
    hidden: Tensor
    visible: Tensor
    sink: Tensor | None
    positions: Tensor
    first_key: Tensor

    @classmethod
    def of(cls, block: RowBlock, call: Call, first_key: Tensor) -> RowFacts:
        """Return the facts of `block`."""
        weights = block.weights.detach()
        hidden = torch.zeros_like(weights, dtype=torch.bool) if block.hidden is None else block.hidden
        hidden = hidden.expand_as(weights)
        visible = ~hidden.all(-1)
        sink = None
        if call.sinks is not None:
            sink = torch.exp(call.sinks.detach()[:, None] - block.logsumexp.detach()).masked_fill(
                ~visible, torch.nan
            )
        offset = call.sizes.kv_len - call.sizes.seq_len
        positions = torch.arange(block.rows.start, block.rows.stop, device=weights.device) + offset
        return cls(block.rows, weights, hidden, visible, sink, positions, first_key)

    def of_key(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weight of one key per row, and whether the row sees it; `keys` broadcasts to `[batch, num_heads, rows]`."""
        kv_len = self.weights.shape[-1]
        keys = keys.expand(self.weights.shape[:-1])
        exists = (keys >= 0) & (keys < kv_len)
        if kv_len == 0:
            return torch.zeros_like(self.weights[..., 0:0].sum(-1)), exists
        index = keys.clamp(0, kv_len - 1)[..., None]
        seen = exists & ~self.hidden.gather(-1, index)[..., 0]
        return self.weights.gather(-1, index)[..., 0], seen


def first_visible_key(call: Call) -> Tensor:
    """Return the first key that any row of each batch element sees, `[batch]`; 0 where none is seen."""
    sizes = call.sizes
    seen = torch.zeros(sizes.batch, sizes.kv_len, dtype=torch.bool, device=call.query.device)
    for start in range(0, sizes.seq_len, 128):
        hidden = call.visibility.hidden(slice(start, min(start + 128, sizes.seq_len)))
        seen |= torch.ones_like(seen) if hidden is None else (~hidden).any(dim=2).any(dim=1)
    return seen.int().argmax(-1) if sizes.kv_len else seen.new_zeros(sizes.batch, dtype=torch.long)


class Reducer(ABC):
    """Takes in blocks of rows in order and gives one tensor."""

    @abstractmethod
    def add(self, facts: RowFacts) -> None:
        """Take in the next block of rows."""

    @abstractmethod
    def result(self) -> Tensor:
        """Return what was gathered from all rows."""


class PerRow(Reducer):
    """Any number that a row has on its own; rows are concatenated along `seq_len`."""

    def __init__(self, measure: Callable[[RowFacts], Tensor]) -> None:
        self._measure = measure
        self._found: list[Tensor] = []

    def add(self, facts: RowFacts) -> None:
        """Measure the block."""
        self._found.append(self._measure(facts))

    def result(self) -> Tensor:
        """Return the rows of all blocks."""
        return torch.cat(self._found, dim=2)


class PooledMap(Reducer):
    """The mean over a cell's rows of the mass on its keys; rows that see no key are left out of the mean."""

    def __init__(self, size: int, call: Call) -> None:
        sizes, device = call.sizes, call.query.device
        self._row_cells = _cells(sizes.seq_len, size, device)
        self._key_cells = _cells(sizes.kv_len, size, device)
        shape = (sizes.batch, sizes.num_heads, min(size, sizes.seq_len), min(size, sizes.kv_len))
        self._mass = torch.zeros(shape, dtype=call.compute_dtype, device=device)
        self._rows = torch.zeros(shape[:3], dtype=call.compute_dtype, device=device)

    def add(self, facts: RowFacts) -> None:
        """Add the block's mass to its cells."""
        pooled = facts.weights.new_zeros((*facts.weights.shape[:3], self._mass.shape[3]))
        pooled.index_add_(3, self._key_cells, facts.weights)
        self._mass.index_add_(2, self._row_cells[facts.rows], pooled)
        self._rows.index_add_(2, self._row_cells[facts.rows], facts.visible.to(self._rows.dtype))

    def result(self) -> Tensor:
        """Return the means; 0 where no row of a cell sees a key."""
        return self._mass / self._rows.clamp_min(1.0)[..., None]


def _cells(length: int, size: int, device: torch.device) -> Tensor:
    """Return the cell of each of `length` places, at most `size` cells of nearly equal width."""
    return torch.arange(length, device=device) * min(size, length) // max(1, length)


def reducers_for(collect: Collect, call: Call) -> dict[str, Reducer]:
    """Return the reducers that `collect` asks for, by the field of `Evidence` they fill."""
    reducers: dict[str, Reducer] = {
        "entropy": PerRow(_entropy),
        "first_token": PerRow(_first_token),
        "previous_token": PerRow(_previous_token),
        "self_token": PerRow(_self_token),
        "mean_distance": PerRow(_mean_distance),
        "visible": PerRow(lambda facts: facts.visible),
    }
    if call.sinks is not None:
        reducers["sink"] = PerRow(_sink)
    if collect.weights:
        reducers["weights"] = PerRow(lambda facts: facts.weights)
    if collect.map_size is not None:
        reducers["map"] = PooledMap(collect.map_size, call)
    if collect.top_k is not None:
        count = min(collect.top_k, call.sizes.kv_len)
        reducers["top_weights"] = PerRow(lambda facts: _top(facts, count)[0])
        reducers["top_keys"] = PerRow(lambda facts: _top(facts, count)[1])
    return reducers


def _entropy(facts: RowFacts) -> Tensor:
    return torch.special.entr(facts.weights).sum(-1).masked_fill(~facts.visible, torch.nan)


def _first_token(facts: RowFacts) -> Tensor:
    weight, _ = facts.of_key(facts.first_key[:, None, None])
    return weight.masked_fill(~facts.visible, torch.nan)


def _previous_token(facts: RowFacts) -> Tensor:
    weight, seen = facts.of_key(facts.positions - 1)
    return weight.masked_fill(~seen, torch.nan)


def _self_token(facts: RowFacts) -> Tensor:
    weight, _ = facts.of_key(facts.positions)
    return weight.masked_fill(~facts.visible | (facts.positions < 0), torch.nan)


def _mean_distance(facts: RowFacts) -> Tensor:
    keys = torch.arange(facts.weights.shape[-1], device=facts.weights.device)
    distance = (facts.positions[:, None] - keys).abs().to(facts.weights.dtype)
    return (facts.weights * distance).sum(-1).masked_fill(~facts.visible, torch.nan)


def _sink(facts: RowFacts) -> Tensor:
    assert facts.sink is not None  # noqa: S101 - the reducer exists only where the call has sinks
    return facts.sink


def _top(facts: RowFacts, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest weights of each row and their keys; 0 and -1 past the keys that the row sees."""
    found = facts.weights.masked_fill(facts.hidden, -1.0).topk(count, dim=-1)
    missing = found.values < 0
    return found.values.masked_fill(missing, 0.0), found.indices.masked_fill(missing, -1)
