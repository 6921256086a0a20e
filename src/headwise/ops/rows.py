"""What is known about a block of rows when its heads are observed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.ops import plain
from headwise.ops.arguments import Call
from headwise.ops.plain import RowBlock


@dataclass(frozen=True)
class RowFacts:
    """The exact weights of a block of rows and where its queries stand.

    - weights `[batch, num_heads, rows, kv_len]`, 0 at hidden keys; hidden: boolean of the same shape
    - logsumexp and visible (whether the row sees any key) `[batch, num_heads, rows]`
    - positions `[rows]`: the key position at which each query stands; negative if before the first key
    - first_key `[batch]`: the first key that any row of the batch element sees
    """

    rows: slice
    weights: Tensor
    hidden: Tensor
    logsumexp: Tensor
    visible: Tensor
    positions: Tensor
    first_key: Tensor

    @classmethod
    def of(cls, block: RowBlock, call: Call, first_key: Tensor) -> RowFacts:
        """Return the facts of `block`, cut off from autograd."""
        weights = block.weights.detach()
        nothing = torch.zeros((1, 1, 1, 1), dtype=torch.bool, device=weights.device)
        hidden = (nothing if block.hidden is None else block.hidden).expand_as(weights)
        offset = call.sizes.kv_len - call.sizes.seq_len
        return cls(
            rows=block.rows,
            weights=weights,
            hidden=hidden,
            logsumexp=block.logsumexp.detach(),
            visible=~hidden.all(-1),
            positions=torch.arange(block.rows.start, block.rows.stop, device=weights.device) + offset,
            first_key=first_key,
        )

    def at_key(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weight of one key per row, and whether the row sees that key.

        keys broadcasts to `[batch, num_heads, rows]`, the shape of what is returned. A key that does not
        exist is not seen, and its weight says nothing.
        """
        kv_len = self.weights.shape[-1]
        keys = keys.expand(self.visible.shape)
        if kv_len == 0:
            return torch.zeros_like(self.logsumexp), torch.zeros_like(self.visible)
        exists = (keys >= 0) & (keys < kv_len)
        index = keys.clamp(0, kv_len - 1)[..., None]
        seen = exists & ~self.hidden.gather(-1, index)[..., 0]
        return self.weights.gather(-1, index)[..., 0], seen

    def of_seeing_rows(self, numbers: Tensor) -> Tensor:
        """Return `numbers`, `[batch, num_heads, rows]`, with NaN for the rows that see no key."""
        return numbers.masked_fill(~self.visible, torch.nan)


def first_visible_key(call: Call) -> Tensor:
    """Return the first key that any row of each batch element sees, `[batch]`; 0 where none is seen."""
    sizes = call.sizes
    seen = torch.zeros((sizes.batch, sizes.kv_len), dtype=torch.bool, device=call.query.device)
    if sizes.kv_len == 0:
        return seen.new_zeros(sizes.batch, dtype=torch.long)
    for rows in plain.row_slices(call):
        hidden = call.visibility.hidden(rows)
        seen |= torch.ones_like(seen) if hidden is None else (~hidden).any(dim=2).any(dim=1)
    return seen.byte().argmax(-1)
