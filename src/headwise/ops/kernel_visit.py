"""Observation by headwise's own CPU kernel: what its second visit is asked, and its findings as evidence."""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headwise.evidence import Collect, Evidence
from headwise.ops import kernel, plain
from headwise.ops.arguments import Call
from headwise.ops.head_subset import of_heads
from headwise.ops.kernel import Attended
from headwise.ops.reducers.pairs import Divergence
from headwise.ops.results import Observation
from headwise.ops.rows import RowFacts


def why_not(call: Call) -> tuple[str, ...]:
    """Return the reasons, if any, why the kernel cannot observe this call."""
    if 0 in (call.sizes.batch, call.sizes.seq_len, call.sizes.kv_len):
        return ("there are no rows or no keys to visit",)
    return kernel.why_not(call)


def observe(call: Call, collect: Collect, first_key: Tensor) -> Observation:
    """Return output, logsumexp and evidence of the whole call; first_key `[batch]`."""
    attended = kernel.attend_for_visit(call)
    visit = _Visit(call, collect, first_key)
    visit.run(attended)
    return Observation(*attended.result, visit.evidence(attended.result.logsumexp))


@cache
def _compiled() -> ModuleType:
    """Return the second visit; Numba, which takes a while to load, is loaded when it is first needed."""
    from headwise.kernels import observe  # noqa: PLC0415 - as said

    return observe


class _Visit:
    """The memory that a visit fills, for all query heads, and what is read from it."""

    def __init__(self, call: Call, collect: Collect, first_key: Tensor) -> None:
        sizes = call.sizes
        self._call, self._collect, self._first_key = call, collect, first_key
        self._heads, self._pairs = collect.heads_of(sizes.num_heads), collect.pairs_of(sizes.num_heads)
        self._kept_rows = range(sizes.seq_len) if collect.weights else collect.rows_of(sizes.seq_len)
        self._offsets = torch.tensor([0, 1, *collect.offsets])
        self._chunk_rows: int = _compiled().chunk_rows(sizes.seq_len)
        self._cells = _Cells(call, collect, self._chunk_rows)
        rows = (sizes.batch, sizes.num_heads, sizes.seq_len)
        self._numbers = _floats(_compiled().NUMBERS, *rows)
        self._largest_keys = _integers(*rows)
        self._at_offsets = _floats(*rows, len(self._offsets))
        self._top_k = min(collect.top_k or 0, sizes.kv_len)
        self._top_weights, self._top_keys = _floats(*rows, self._top_k), _integers(*rows, self._top_k)
        kept = len(self._kept_rows)
        self._kept = torch.zeros((*rows[:2], kept, sizes.kv_len), dtype=torch.float32)
        self._received = self._cells.empty_received()
        self._pooled = self._cells.empty_pooled()

    def run(self, attended: Attended) -> None:
        """Let the kernel look at every row again."""
        sizes = self._call.sizes
        gates = torch.zeros(sizes.num_heads)
        gates[list(self._heads)] = 1.0
        places = torch.full((sizes.seq_len,), -1)
        places[torch.tensor(self._kept_rows, dtype=torch.long)] = torch.arange(len(self._kept_rows))
        first_key = self._first_key.contiguous()
        findings = _compiled().Findings(
            maxima=attended.operands.maxima,
            sums=attended.operands.sums,
            numbers=self._numbers.data_ptr(),
            largest_keys=self._largest_keys.data_ptr(),
            first_keys=first_key.data_ptr(),
            offsets=self._offsets.data_ptr(),
            at_offsets=self._at_offsets.data_ptr(),
            row_places=places.data_ptr(),
            kept_weights=self._kept.data_ptr(),
            top_weights=self._top_weights.data_ptr(),
            top_keys=self._top_keys.data_ptr(),
            received=self._received.data_ptr(),
            pooled=self._pooled.data_ptr(),
            num_offsets=len(self._offsets),
            local_window=self._collect.local_window,
            num_kept=len(self._kept_rows),
            top_k=self._top_k,
            chunk_rows=self._chunk_rows,
            chunk_cells=self._cells.in_chunk,
            row_cells=self._cells.rows,
            key_cells=self._cells.keys,
            collects_received=int(self._collect.received),
        )
        operands = attended.operands._replace(
            logsumexp=0,
            maxima=0,
            sums=0,
            gates=gates.data_ptr(),
            gate_stride=0,
            owners=(*attended.operands.owners, self, gates, places, first_key),
        )
        _compiled().visit(attended.sizes, operands, findings, num_threads=torch.get_num_threads())

    def evidence(self, logsumexp: Tensor) -> Evidence[Tensor]:
        """Return what was found, of the heads that are reported."""
        heads = None if self._collect.heads is None else torch.tensor(self._heads)

        def reported(found: Tensor) -> Tensor:
            return found if heads is None else found[:, heads]

        count = reported(self._visible_keys())
        entropy, largest, first, distance, local = (reported(each) for each in self._numbers)
        at_offsets = reported(self._at_offsets)
        kept, visible = reported(self._kept), count > 0
        return Evidence(
            entropy=entropy,
            # Times 0, not filled with it: a row of one key that is NaN stays NaN.
            normalised_entropy=entropy / count.clamp_min(2).float().log() * (count != 1),
            largest_weight=largest,
            largest_key=reported(self._largest_keys),
            first_token=first,
            previous_token=at_offsets[..., 1].contiguous(),
            self_token=at_offsets[..., 0].contiguous(),
            mean_distance=distance,
            local=local,
            visible=visible,
            sink=self._sink(reported(logsumexp), visible, heads),
            weights=kept if self._collect.weights else None,
            map=self._cells.mean(reported(self._pooled), visible) if self._collect.map_size else None,
            top_weights=reported(self._top_weights) if self._top_k else None,
            top_keys=reported(self._top_keys) if self._top_k else None,
            at_offsets=at_offsets[..., 2:] if self._collect.offsets else None,
            row_weights=self._asked_rows(kept) if self._collect.rows else None,
            received=reported(_sum_in_order(self._received)) if self._collect.received else None,
            divergence=self._divergence() if self._pairs else None,
            heads=self._heads if heads is not None else None,
        )

    def _visible_keys(self) -> Tensor:
        """Return how many keys each row sees, `[batch, num_heads, seq_len]`."""
        sizes, visibility = self._call.sizes, self._call.visibility
        shape = (sizes.batch, sizes.num_heads, sizes.seq_len)
        if not visibility.boolean and not visibility.additive:
            intervals = visibility.intervals
            return torch.from_numpy(intervals.stop - intervals.start)[:, None].expand(shape)
        # None, which says that all is visible, is never found where a tensor is in the mask.
        found = [
            (~hidden).sum(-1).expand(*shape[:2], -1)
            for rows in plain.row_slices(self._call)
            if (hidden := visibility.hidden(rows)) is not None
        ]
        return torch.cat(found, dim=2)

    def _sink(self, logsumexp: Tensor, visible: Tensor, heads: Tensor | None) -> Tensor | None:
        if self._call.sinks is None:
            return None
        sinks = self._call.sinks.detach()
        sinks = sinks if heads is None else sinks[heads]
        return torch.exp(sinks[:, None] - logsumexp).masked_fill(~visible, torch.nan)

    def _asked_rows(self, kept: Tensor) -> Tensor:
        if not self._collect.weights:
            return kept
        return kept[:, :, list(self._collect.rows_of(self._call.sizes.seq_len))]

    def _divergence(self) -> Tensor:
        """Return how far the rows of pairs of heads are apart, from the weights of those heads alone."""
        wanted = sorted({head for pair in self._pairs for head in pair})
        call = of_heads(self._call, wanted)
        pairs = [(wanted.index(first), wanted.index(second)) for first, second in self._pairs]
        reducer = Divergence(pairs, call.sizes.seq_len)
        for block in plain.blocks(call):
            reducer.add(RowFacts.of(block, call, self._first_key))
        return reducer.fields()["divergence"]


class _Cells:
    """How rows and keys fall into the cells of a map, and the chunks in which the kernel adds them up."""

    def __init__(self, call: Call, collect: Collect, chunk_rows: int) -> None:
        sizes = call.sizes
        self._sizes, self._chunk_rows = sizes, chunk_rows
        size = collect.map_size or 0
        self._collects_received = collect.received
        self.rows = max(1, min(size, sizes.seq_len))
        self.keys = min(size, sizes.kv_len) or int(collect.received)
        firsts = range(0, sizes.seq_len, chunk_rows)
        self._spans = [
            (self.row_cell(first), self.row_cell(min(first + chunk_rows, sizes.seq_len) - 1) + 1)
            for first in firsts
        ]
        self.in_chunk = max(last - first for first, last in self._spans) if size else 0

    def row_cell(self, row: int) -> int:
        """Return the cell of a row."""
        return row * self.rows // self._sizes.seq_len

    def empty_received(self) -> Tensor:
        """Return zeros for what the keys receive in each chunk, `[chunks, batch, num_heads, kv_len]`."""
        sizes, chunks = self._sizes, len(self._spans) if self._collects_received else 0
        return torch.zeros((chunks, sizes.batch, sizes.num_heads, sizes.kv_len))

    def empty_pooled(self) -> Tensor:
        """Return zeros for the mass in the cells of each chunk, `[batch, num_heads, chunks, cells, keys]`."""
        sizes = self._sizes
        return torch.zeros((sizes.batch, sizes.num_heads, len(self._spans), self.in_chunk, self.keys))

    def mean(self, pooled: Tensor, visible: Tensor) -> Tensor:
        """Return the map: in each cell the mean over its rows that see a key; 0 where none does."""
        batch, heads = pooled.shape[:2]
        mass = pooled.new_zeros((batch, heads, self.rows, self.keys))
        for chunk, (first, last) in enumerate(self._spans):
            mass[:, :, first:last] += pooled[:, :, chunk, : last - first]
        cells = torch.tensor([self.row_cell(row) for row in range(self._sizes.seq_len)])
        rows = pooled.new_zeros((batch, heads, self.rows))
        rows.index_add_(2, cells, visible.to(rows.dtype).expand(batch, heads, -1))
        return mass / rows.clamp_min(1.0)[..., None]


def _floats(*shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float32)


def _integers(*shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.long)


def _sum_in_order(parts: Tensor) -> Tensor:
    """Return the sum over the first axis, in its order."""
    total: Any = np.add.reduce(parts.numpy(), axis=0)
    return torch.from_numpy(total)
