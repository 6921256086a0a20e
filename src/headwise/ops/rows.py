"""What is known about a block of rows when its heads are observed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from headwise.ops.arguments import Call
from headwise.ops.plain import RowBlock


@dataclass(frozen=True)
class RowFacts:
    """The exact weights of a block of rows and where its queries stand.

    - weights `[batch, heads, rows, kv_len]`, 0 at hidden keys; hidden: boolean of the same shape
    - visible_keys `[batch, heads, rows]`: how many keys the row sees
    - sink `[batch, heads, rows]`: what a learned sink took, of no meaning where no key is seen; 0 without one
    - positions `[rows]`: the key position at which each query stands; negative if before the first key
    - first_key `[batch]`: the key that counts as the first token; negative if it is not among the keys
    """

    rows: slice
    weights: Tensor
    hidden: Tensor
    visible_keys: Tensor
    sink: Tensor
    positions: Tensor
    first_key: Tensor

    @classmethod
    def of(cls, block: RowBlock, call: Call, first_key: Tensor) -> RowFacts:
        """Return the facts of `block`, cut off from autograd."""
        weights, kv_len = block.weights.detach(), call.sizes.kv_len
        nothing = torch.zeros((1, 1, 1, kv_len), dtype=torch.bool, device=weights.device)
        hidden = nothing if block.hidden is None else block.hidden
        offset = kv_len - call.sizes.seq_len
        return cls(
            rows=block.rows,
            weights=weights,
            hidden=hidden.expand_as(weights),
            visible_keys=(~hidden).sum(-1).expand(weights.shape[:3]),
            sink=_taken_by_sinks(call, block.logsumexp.detach()),
            positions=torch.arange(block.rows.start, block.rows.stop, device=weights.device) + offset,
            first_key=first_key,
        )

    def of_heads(self, heads: Tensor) -> RowFacts:
        """Return the facts of some heads, in the order of `heads`."""
        return replace(
            self,
            weights=self.weights[:, heads],
            hidden=self.hidden[:, heads],
            visible_keys=self.visible_keys[:, heads],
            sink=self.sink[:, heads],
        )

    @property
    def visible(self) -> Tensor:
        """Whether each row sees any key, `[batch, heads, rows]`."""
        return self.visible_keys > 0

    @cached_property
    def seen_weights(self) -> Tensor:
        """The weights with -1 at hidden keys, so that a visible key is larger whatever its weight."""
        return self.weights.masked_fill(self.hidden, -1.0)

    @cached_property
    def distances(self) -> Tensor:
        """How many tokens lie between query and key, `[rows, kv_len]`, in the dtype of the weights."""
        keys = torch.arange(self.weights.shape[-1], device=self.weights.device)
        return (self.positions[:, None] - keys).abs().to(self.weights.dtype)

    def at_key(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weight of one key per row, and whether the row sees that key.

        keys broadcasts to `[batch, heads, rows]`, the shape of what is returned. A key that does not
        exist is not seen, and its weight is 0.
        """
        kv_len = self.weights.shape[-1]
        keys = keys.expand(self.visible_keys.shape)
        if kv_len == 0:
            return torch.zeros_like(keys, dtype=self.weights.dtype), torch.zeros_like(keys, dtype=torch.bool)
        exists = (keys >= 0) & (keys < kv_len)
        index = keys.clamp(0, kv_len - 1)[..., None]
        seen = exists & ~self.hidden.gather(-1, index)[..., 0]
        return self.weights.gather(-1, index)[..., 0].masked_fill(~exists, 0.0), seen

    def of_seeing_rows(self, numbers: Tensor) -> Tensor:
        """Return `numbers`, `[batch, heads, rows]`, with NaN for the rows that see no key."""
        return numbers.masked_fill(~self.visible, torch.nan)


def _taken_by_sinks(call: Call, logsumexp: Tensor) -> Tensor:
    if call.sinks is None:
        return torch.zeros_like(logsumexp)
    return torch.exp(call.sinks.detach()[:, None] - logsumexp)
