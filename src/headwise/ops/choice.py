"""Which implementation runs a call, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from headwise.errors import ArgumentError, UnsupportedError
from headwise.ops import fused, kernel
from headwise.ops.arguments import Call

Implementation = Literal["auto", "cpu", "torch", "reference"]
IMPLEMENTATIONS: tuple[Implementation, ...] = ("auto", "cpu", "torch", "reference")


@dataclass(frozen=True)
class Choice:
    """The implementation and the path in it that a call takes, with the reasons.

    - impl: `"cpu"`, `"torch"` or `"reference"`
    - path: `"kernel"` (headwise's own), `"fused"` (torch's fused kernel), `"plain"` (plain torch operations)
      or `"reference"` (float64)
    """

    impl: Literal["cpu", "torch", "reference"]
    path: Literal["kernel", "fused", "plain", "reference"]
    reasons: tuple[str, ...]


_KERNEL = Choice("cpu", "kernel", ("the kernel computes this call",))


def check_impl(impl: Any) -> None:
    """Refuse an implementation that does not exist."""
    if impl not in IMPLEMENTATIONS:
        raise ArgumentError(f"impl={impl!r} is unknown; allowed are {', '.join(map(repr, IMPLEMENTATIONS))}")


def choose_for(call: Call, *, impl: Implementation, need_logsumexp: bool) -> Choice:
    """Return the choice for a checked call.

    Raises:
        UnsupportedError: `impl="cpu"` was asked for what the kernel does not do.

    """
    check_impl(impl)
    if impl == "reference":
        return Choice("reference", "reference", ("the caller named it",))
    if impl != "torch":
        missing = kernel.why_not(call)
        if not missing:
            return _KERNEL
        if impl == "cpu":
            raise UnsupportedError(
                f'impl="cpu" cannot compute this call: {"; ".join(missing)}; '
                'use impl="auto", which falls back on torch'
            )
    obstacles = fused.why_not(call, need_logsumexp=need_logsumexp)
    if obstacles:
        return Choice("torch", "plain", obstacles)
    return Choice("torch", "fused", ("the fused kernel is right for this call",))
