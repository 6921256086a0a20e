"""How a call reaches what computes it: at once, through the torch operator, or operation by operation."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from headwise.ops.arguments import Call
from headwise.ops.watchers import Watcher, watcher_of


class Route(NamedTuple):
    """The way a call goes, and why.

    - kind: `"direct"`: nobody follows, the implementation is called; `"operator"`: torch sees the operator
      `headwise::attention`; `"operations"`: torch sees every operation, all of them torch's own
    - needs_gradient: whether an input requires one
    """

    kind: Literal["direct", "operator", "operations"]
    needs_gradient: bool
    watcher: Watcher | None


DIRECT = Route("direct", needs_gradient=False, watcher=None)
_FOR_GRADIENT = Route("operator", needs_gradient=True, watcher=None)


def route_of(call: Call) -> Route:
    """Return the way of a call."""
    tensors = call.tensors
    needs_gradient = torch.is_grad_enabled() and _requires_grad(tensors)
    watcher = watcher_of(tensors)
    if watcher is None:
        return _FOR_GRADIENT if needs_gradient else DIRECT
    return Route("operator" if watcher.knows_operators else "operations", needs_gradient, watcher)


def _requires_grad(tensors: list[Tensor]) -> bool:
    for tensor in tensors:  # noqa: SIM110 - a generator would take longer than the question, in every call
        if tensor.requires_grad:
            return True
    return False
