"""NaN and infinity in the inputs: they reach exactly the rows that see them, forward and backward.

`0 * NaN` is NaN, so a weight of 0 does not keep a hidden value out of a matrix product, and the backward pass
multiplies every key and query by a gradient that is 0 where the mask hides. The products are therefore taken
over finite copies, and what is not finite is put back where it is seen.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch._C import _functorch as functorch
from torch.linalg import vector_norm

from headwise.ops.arguments import Call
from headwise.ops.grouped import grouped_product
from headwise.ops.ordered_sums import spread


def surely_finite(call: Call) -> bool:
    """Return whether the inputs hold no NaN or infinity and no score can overflow.

    One pass over query, key and value: `|query_i . key_j|` is at most the product of the whole norms. False
    means "perhaps not": entries beyond 1e19 make a float32 norm overflow while they are finite.
    """
    if torch._C._len_torch_dispatch_stack() or functorch.peek_interpreter_stack() is not None:
        return False  # there may be no numbers to look at, or many where one seems to be
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
    clean = grouped_product(without_bad_rows(query), without_bad_rows(key).mT)
    raw = grouped_product(query.detach(), key.detach().mT)
    return torch.where(bad_scores(query, key), raw, clean)


def without_bad_rows(tensor: Tensor) -> Tensor:
    """Return the queries or keys with 0 for those that are not finite."""
    return tensor.masked_fill(_bad_rows(tensor), 0.0)


def bad_scores(query: Tensor, key: Tensor) -> Tensor:
    """Return which products are with a query or key that is not finite."""
    return _bad_rows(query) | _bad_rows(key).repeat_interleave(query.shape[1] // key.shape[1], dim=1).mT


def _bad_rows(tensor: Tensor) -> Tensor:
    return ~tensor.detach().isfinite().all(-1, keepdim=True)


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


def gated_whole(output: Tensor, head_gates: Tensor, logsumexp: Tensor, *, is_followed: bool) -> Tensor:
    """Return the whole output times the gate of each head, as `gated` does from what an operator returns.

    A row whose logsumexp is -inf sees no key and is 0, or has no softmax and is NaN. Only a gate of 0 changes
    it. Where nobody but autograd follows, gradients of gates have the same bits on any number of threads.
    """
    in_order = head_gates.requires_grad and not is_followed and head_gates.is_cpu
    gates = head_gates[..., None]
    removed = (gates == 0)[..., None] & ~output.detach().isfinite()
    if in_order:
        gates = spread(gates, logsumexp.shape)
    factors = torch.where(logsumexp.detach() == -torch.inf, torch.ones_like(gates), gates)[..., None]
    if in_order:
        factors = spread(factors, output.shape)
    return (output.masked_fill(removed, 0.0) * factors).to(output.dtype)
