"""The weights themselves, which a module can be asked for: exact, before dropout, differentiable."""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.masks import Mask
from headwise.ops import arguments, nonfinite, plain
from headwise.ops.joining import JoinedRows


def attention_weights(query: Tensor, key: Tensor, *, mask: Mask | None, average: bool) -> Tensor:
    """Return `[batch, num_heads, seq_len, kv_len]`, or the mean over the heads, in the dtype of computation.

    A row that sees no key is 0. Where the mean is asked for, the weights of one block of rows exist at once.
    """
    call = arguments.check(query, key, key, mask=mask)
    wide, guarded = key.to(call.compute_dtype), not nonfinite.surely_finite(call)
    joined = JoinedRows(call.sizes.seq_len)
    with torch.autocast(query.device.type, enabled=False):  # it would round the scores to 16 bits
        for rows in plain.row_slices(call):
            weights, _, _ = plain.weigh_rows(call, rows, wide, guarded=guarded)
            joined.add(rows, weights.mean(1, keepdim=True) if average else weights)
    return joined.whole()[:, 0] if average else joined.whole()
