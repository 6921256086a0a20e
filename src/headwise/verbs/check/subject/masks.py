"""The shapes in which a mask is handed over where the one that was given does not do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headwise.verbs.check.asking import Inputs, Role
from headwise.verbs.check.subject.way import Asked

_SHAPED = (Role.MASK, Role.BIAS)


def options_to_try(asked: Asked) -> Iterator[Mapping[Role, Any]]:
    """Return the options as they are, and with masks as torch.nn.MultiheadAttention wants those of texts."""
    options = asked.inputs.options
    yield options
    by_text = {
        role: _of_each_head(mask, asked)
        for role in _SHAPED
        if isinstance(mask := options.get(role), Tensor) and mask.dim() == 4
    }
    if by_text and asked.way.has_batch:
        yield {**options, **by_text}


@dataclass(frozen=True)
class FullMask:
    """A mask that is the same everywhere.

    - fill: what it is filled with
    - rank: its number of axes
    """

    fill: bool | float
    rank: int

    def of(self, inputs: Inputs) -> Tensor:
        """Return it as `[seq_len, kv_len]`, `[batch, seq_len, kv_len]` or `[batch, 1, seq_len, kv_len]`."""
        mask = torch.full((inputs.query.shape[-2], inputs.key.shape[-2]), self.fill)
        return in_every_rank(mask, inputs.query.shape[0])[self.rank]


def in_every_rank(mask: Tensor, batch: int) -> dict[int, Tensor]:
    """Return a mask `[seq_len, kv_len]` with two, four and three axes, by their number."""
    whole = mask.expand(batch, 1, *mask.shape)
    return {2: mask, 4: whole, 3: whole[:, 0]}


def _of_each_head(mask: Tensor, asked: Asked) -> Tensor:
    """Return `[batch * num_heads, seq_len, kv_len]`."""
    shape = (asked.batch, asked.way.sizes.num_heads, *mask.shape[2:])
    return mask.expand(shape).flatten(0, 1)
