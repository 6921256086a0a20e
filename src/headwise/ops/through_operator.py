"""A call by way of the torch operator `headwise::attention`, which whoever follows torch sees."""

from __future__ import annotations

from headwise.ops import (
    nonfinite,
    registered_flops,
    registered_gradient,
    registered_legacy_vmap,
    registered_vmap,
)
from headwise.ops.arguments import Call
from headwise.ops.choice import Implementation, refuse
from headwise.ops.registered import ATTENTION, Terms
from headwise.ops.results import AttentionResult

# What an operator is beside its computation stands in rooms of its own.
REGISTERED = (registered_flops, registered_gradient, registered_vmap, registered_legacy_vmap)


def attend(call: Call, *, impl: Implementation, need_logsumexp: bool, is_followed: bool) -> AttentionResult:
    """Return output and logsumexp of the whole call; the latter only if it is needed.

    is_followed says that somebody follows torch's operations, and not autograd alone.

    Raises:
        UnsupportedError: `impl="cpu"` was asked for what the kernel does not do.

    """
    refuse(call, impl)
    terms = Terms.of(call)
    if is_followed:
        output, logsumexp, _ = ATTENTION(*terms, impl, need_logsumexp)
    else:
        output, logsumexp, _ = registered_gradient.attend(terms, impl, need_logsumexp)
    if call.head_gates is not None:
        output = nonfinite.gated_whole(output, call.head_gates, logsumexp, is_followed=is_followed)
    return AttentionResult(output, logsumexp)
