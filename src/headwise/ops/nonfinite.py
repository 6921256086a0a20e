"""NaN and infinity in the inputs: they reach exactly the rows that see them, forward and backward.

`0 * NaN` is NaN, so a weight of 0 does not keep a hidden value out of a matrix product, and the backward pass
multiplies every key and query by a gradient that is 0 where the mask hides. The products are therefore taken
over finite copies, and what is not finite is put back where it is seen.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.linalg import vector_norm

from headwise.ops.arguments import Call
from headwise.ops.grouped import grouped_product


def surely_finite(call: Call) -> bool:
    """Return whether the inputs hold no NaN or infinity and no score can overflow.

    One pass over query, key and value: `|query_i . key_j|` is at most the product of the whole norms. False
    means "perhaps not": entries beyond 1e19 make a float32 norm overflow while they are finite.
    """
    if isinstance(call.query, FakeTensor):
        return False  # there are no numbers to look at
    dtype = call.compute_dtype
    query, key, value = (
        vector_norm(tensor.detach(), dtype=dtype) for tensor in (call.query, call.key, call.value)
    )
    bound = query * key * abs(call.scale) + value
    for bias in call.visibility.additive:
        if bias.numel():
            # -inf hides and finite numbers are harmless; NaN and +inf are not, and amax shows both.
            bound = bound + bias.detach().amax().to(dtype).clamp_min(0.0)
    if call.head_gates is not None and call.head_gates.numel():
        bound = bound + call.head_gates.detach().abs().amax()
    return bool(bound.isfinite())


def scores(query: Tensor, key: Tensor) -> Tensor:
    """Return query . key; products with non-finite queries or keys are there but carry no gradient."""
    bad_query, bad_key = (~tensor.detach().isfinite().all(-1, keepdim=True) for tensor in (query, key))
    clean = grouped_product(query.masked_fill(bad_query, 0.0), key.masked_fill(bad_key, 0.0).mT)
    raw = grouped_product(query.detach(), key.detach().mT)
    bad_key = bad_key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    return torch.where(bad_query | bad_key.mT, raw, clean)


def weighted_sum(weights: Tensor, value: Tensor, hidden: Tensor | None, *, is_mean: bool) -> Tensor:
    """Return weights @ value; a non-finite value counts in the rows that see its key and in no other.

    It counts whatever its weight is: every weight is above 0, though float32 may not hold it, or was before
    dropout. is_mean says that there was none: the weights of a row sum to no more than 1.
    """
    found = value.detach()
    limits = torch.finfo(weights.dtype)
    output = grouped_product(weights, value.masked_fill(~found.isfinite(), 0.0))
    if is_mean:  # rounding must not carry a mean of finite numbers beyond the largest of them
        output = output.clamp(limits.min, limits.max)
    seen = torch.ones_like(weights) if hidden is None else (~hidden).to(weights.dtype).expand_as(weights)
    nan, up, down = (
        grouped_product(seen, kind.to(weights.dtype)) > 0
        for kind in (found.isnan(), found == torch.inf, found == -torch.inf)
    )
    added = torch.zeros_like(output).masked_fill(up, torch.inf).masked_fill(down, -torch.inf)
    return output + added.masked_fill(nan | (up & down), torch.nan)


def gated(call: Call, output: Tensor, hidden: Tensor | None) -> Tensor:
    """Return `call.gated(output)`, but 0 where a gate is 0 or a row sees no key, whatever meets there."""
    if call.head_gates is None:
        return output
    removed = (call.head_gates == 0)[..., None, None]
    # Finite numbers stay: they are the derivative of the gate.
    found = call.gated(output.masked_fill(removed & ~output.detach().isfinite(), 0.0))
    return found if hidden is None else found.masked_fill(hidden.all(-1, keepdim=True), 0.0)
