"""Which key counts as the first token of each batch element."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from headwise.counts import LARGEST_SIZE, checked_size
from headwise.errors import ArgumentError
from headwise.ops import plain
from headwise.ops.arguments import Call

FirstKey = Tensor | Sequence[int] | int | None


def first_keys(call: Call, given: FirstKey) -> Tensor:
    """Return the key that counts as the first token, `[batch]`; negative where it is not among the keys.

    given: one key for all batch elements or one for each; None for the first key that any row sees.

    Raises:
        ArgumentError: `given` is no integer or not one for each batch element, or there is no such key.

    """
    if given is None:
        return _first_visible(call)
    batch, kv_len = call.sizes.batch, call.sizes.kv_len
    plain_given = given.tolist() if isinstance(given, Tensor) else given
    keys = list(plain_given) if isinstance(plain_given, Sequence) else [plain_given] * batch
    if len(keys) != batch:
        raise ArgumentError(
            f"first_key has {len(keys)} keys; pass one for each of the {batch} batch elements, or an integer"
        )
    checked = [checked_size("first_key", key, at_least=-LARGEST_SIZE) for key in keys]
    for key in checked:
        if key >= kv_len:
            raise ArgumentError(
                f"first_key={key} does not exist; there are {kv_len} keys; pass one of them, or a negative "
                "number to say that the first token is no longer one"
            )
    return torch.tensor(checked, dtype=torch.long, device=call.query.device)


def _first_visible(call: Call) -> Tensor:
    """Return the first key that any row of each batch element sees; 0 where none is seen."""
    sizes = call.sizes
    seen = torch.zeros((sizes.batch, sizes.kv_len), dtype=torch.bool, device=call.query.device)
    if sizes.kv_len == 0 or sizes.seq_len == 0:
        return seen.new_zeros(sizes.batch, dtype=torch.long)
    if not call.visibility.boolean and not call.visibility.additive:
        return _first_of_intervals(call).to(call.query.device)
    for rows in plain.row_slices(call):
        hidden = call.visibility.hidden(rows)
        seen |= torch.ones_like(seen) if hidden is None else (~hidden).any(dim=2).any(dim=1)
    return seen.byte().argmax(-1)


def _first_of_intervals(call: Call) -> Tensor:
    """Return the same where each row sees one interval of keys."""
    start, stop = call.visibility.intervals.start, call.visibility.intervals.stop
    seeing = start < stop
    first = np.where(seeing, start, call.sizes.kv_len).min(axis=1)
    return torch.from_numpy(np.where(seeing.any(axis=1), first, 0)).expand(call.sizes.batch)
