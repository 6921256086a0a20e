"""NaN and inf in the inputs: they reach exactly the rows that see them, forward and backward.

`0 * NaN` is NaN, so a weight of 0 does not keep a masked value out of a matrix product, and the backward pass
multiplies every key and query by a gradient that is 0 where the mask hides. The products are therefore taken
over finite copies, and what is not finite is put back where it is seen.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.ops.grouped import grouped_product


def all_finite(*tensors: Tensor) -> bool:
    """Return whether no tensor holds NaN or inf."""
    for tensor in tensors:
        tensor = tensor.detach()
        # One pass without a temporary; a sum of finite numbers that overflows is looked at again.
        total = tensor.sum(dtype=torch.promote_types(tensor.dtype, torch.float32))
        if not bool(total.isfinite()) and not bool(tensor.isfinite().all()):
            return False
    return True


def scores(query: Tensor, key: Tensor) -> Tensor:
    """Return query . key; the products with non-finite queries and keys are there but carry no gradient."""
    bad_query, bad_key = (~tensor.detach().isfinite().all(-1, keepdim=True) for tensor in (query, key))
    clean = grouped_product(query.masked_fill(bad_query, 0.0), key.masked_fill(bad_key, 0.0).mT)
    raw = grouped_product(query.detach(), key.detach().mT)
    bad_key = bad_key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    return torch.where(bad_query | bad_key.mT, raw, clean)


def weighted_sum(weights: Tensor, value: Tensor, hidden: Tensor | None) -> Tensor:
    """Return weights @ value, where a non-finite value counts in the rows that see its key and in no other."""
    bad = ~value.detach().isfinite()
    output = grouped_product(weights, value.masked_fill(bad, 0.0))
    seen = torch.ones_like(weights) if hidden is None else (~hidden).to(weights.dtype).expand_as(weights)
    found = value.detach()
    nan, up, down = (
        grouped_product(seen, kind.to(weights.dtype)) > 0
        for kind in (found.isnan(), found == torch.inf, found == -torch.inf)
    )
    added = torch.zeros_like(output).masked_fill(up, torch.inf).masked_fill(down, -torch.inf)
    return output + added.masked_fill(nan | (up & down), torch.nan)
