"""Which implementation runs a call, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from headwise.errors import ArgumentError
from headwise.ops import fused
from headwise.ops.arguments import Call

Implementation = Literal["auto", "torch", "reference"]
IMPLEMENTATIONS: tuple[Implementation, ...] = ("auto", "torch", "reference")


@dataclass(frozen=True)
class Choice:
    """The implementation and the path in it that a call takes, with the reasons.

    - impl: `"torch"` or `"reference"`
    - path: `"fused"` (torch's fused kernel), `"plain"` (plain torch operations) or `"reference"` (float64)
    """

    impl: Literal["torch", "reference"]
    path: Literal["fused", "plain", "reference"]
    reasons: tuple[str, ...]


def check_impl(impl: Any) -> None:
    """Refuse an implementation that does not exist."""
    if impl not in IMPLEMENTATIONS:
        raise ArgumentError(f"impl={impl!r} is unknown; allowed are {', '.join(map(repr, IMPLEMENTATIONS))}")


def choose_for(call: Call, *, impl: Implementation, need_logsumexp: bool) -> Choice:
    """Return the choice for a checked call."""
    check_impl(impl)
    if impl == "reference":
        return Choice("reference", "reference", ("the caller named it",))
    obstacles = fused.why_not(call, need_logsumexp=need_logsumexp)
    if obstacles:
        return Choice("torch", "plain", obstacles)
    return Choice("torch", "fused", ("the fused kernel is right for this call",))
