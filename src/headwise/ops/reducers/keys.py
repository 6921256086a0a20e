"""Reducers that pick keys, or add up over rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headwise.ops.arguments import Call
from headwise.ops.joining import JoinedRows
from headwise.ops.map_cells import cells_of
from headwise.ops.reducers.reducer import Reducer
from headwise.ops.rows import RowFacts


class LargestKey(Reducer):
    """The largest weight of each row and the first key that has it."""

    def __init__(self, seq_len: int) -> None:
        self._weights, self._keys = JoinedRows(seq_len), JoinedRows(seq_len)

    def add(self, facts: RowFacts) -> None:
        """Find the largest weight of each row of the block."""
        # A place past the keys, so that there is one to find where there are none.
        padded = torch.nn.functional.pad(
            facts.seen_weights, (0, 0 if facts.weights.shape[-1] else 1), value=-1.0
        )
        found = padded.max(dim=-1)  # the first of several
        self._weights.add(facts.rows, facts.of_seeing_rows(found.values))
        self._keys.add(facts.rows, found.indices.masked_fill(~(found.values >= 0), -1))

    def fields(self) -> dict[str, Tensor]:
        """Return weights and keys, `[batch, heads, seq_len]`."""
        return {"largest_weight": self._weights.whole(), "largest_key": self._keys.whole()}


class TopKeys(Reducer):
    """The largest weights of each row and their keys; 0 and -1 past the keys that the row sees."""

    def __init__(self, count: int, call: Call) -> None:
        self._count = min(count, call.sizes.kv_len)
        self._weights, self._keys = JoinedRows(call.sizes.seq_len), JoinedRows(call.sizes.seq_len)

    def add(self, facts: RowFacts) -> None:
        """Pick the largest weights of each row of the block."""
        found = facts.seen_weights.topk(self._count, dim=-1)
        missing = found.values == -1.0
        self._weights.add(facts.rows, found.values.masked_fill(missing, 0.0))
        self._keys.add(facts.rows, found.indices.masked_fill(missing, -1))

    def fields(self) -> dict[str, Tensor]:
        """Return weights and keys, `[batch, heads, seq_len, top_k]`."""
        return {"top_weights": self._weights.whole(), "top_keys": self._keys.whole()}


class ChosenRows(Reducer):
    """The exact weights of some rows."""

    def __init__(self, rows: Sequence[int], call: Call, num_heads: int) -> None:
        self._rows = rows
        shape = (call.sizes.batch, num_heads, len(rows), call.sizes.kv_len)
        self._weights = call.query.new_zeros(shape, dtype=call.compute_dtype)

    def add(self, facts: RowFacts) -> None:
        """Copy those of the rows that lie in the block."""
        for place, row in enumerate(self._rows):
            if facts.rows.start <= row < facts.rows.stop:
                self._weights[:, :, place] = facts.weights[:, :, row - facts.rows.start]

    def fields(self) -> dict[str, Tensor]:
        """Return the rows, `[batch, heads, rows, kv_len]`."""
        return {"row_weights": self._weights}


class Received(Reducer):
    """The weight on each key, added up over all rows."""

    def __init__(self, call: Call, num_heads: int) -> None:
        shape = (call.sizes.batch, num_heads, call.sizes.kv_len)
        self._mass = call.query.new_zeros(shape, dtype=call.compute_dtype)

    def add(self, facts: RowFacts) -> None:
        """Add the rows of the block."""
        self._mass += facts.weights.sum(2)

    def fields(self) -> dict[str, Tensor]:
        """Return the sums, `[batch, heads, kv_len]`."""
        return {"received": self._mass}


class PooledMap(Reducer):
    """The mean over a cell's rows of the mass on its keys; rows that see no key are left out of the mean."""

    def __init__(self, size: int, call: Call, num_heads: int) -> None:
        sizes, device = call.sizes, call.query.device
        self._row_cells = cells_of(sizes.seq_len, size, device)
        self._key_cells = cells_of(sizes.kv_len, size, device)
        shape = (sizes.batch, num_heads, min(size, sizes.seq_len), min(size, sizes.kv_len))
        self._mass = call.query.new_zeros(shape, dtype=call.compute_dtype)
        self._rows = call.query.new_zeros(shape[:3], dtype=call.compute_dtype)

    def add(self, facts: RowFacts) -> None:
        """Add the block's mass to its cells."""
        pooled = facts.weights.new_zeros((*facts.weights.shape[:3], self._mass.shape[3]))
        pooled.index_add_(3, self._key_cells, facts.weights)
        self._mass.index_add_(2, self._row_cells[facts.rows], pooled)
        self._rows.index_add_(2, self._row_cells[facts.rows], facts.visible.to(self._rows.dtype))

    def fields(self) -> dict[str, Tensor]:
        """Return the means; 0 where no row of a cell sees a key."""
        return {"map": self._mass / self._rows.clamp_min(1.0)[..., None]}
