"""Which implementation runs a call, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from headwise.errors import ArgumentError, UnsupportedError
from headwise.ops import fused, kernel
from headwise.ops.arguments import Call
from headwise.ops.routes import DIRECT, Route, route_of

Implementation = Literal["auto", "cpu", "torch", "reference"]
IMPLEMENTATIONS: tuple[Implementation, ...] = ("auto", "cpu", "torch", "reference")


@dataclass(frozen=True)
class Choice:
    """The implementation and the path in it that a call takes, with the reasons.

    - impl: `"cpu"`, `"torch"` or `"reference"`
    - path: `"kernel"` (headwise's own), `"fused"` (torch's fused kernel), `"plain"` (plain torch operations)
      or `"reference"` (float64); what has gone by the kernel has the kernel's gradient, what has gone by the
      others that of the formula (`ops/formula.py`)
    """

    impl: Literal["cpu", "torch", "reference"]
    path: Literal["kernel", "fused", "plain", "reference"]
    reasons: tuple[str, ...]


_KERNEL = Choice("cpu", "kernel", ("the kernel computes this call",))
_FUSED = Choice("torch", "fused", ("the fused kernel is right for this call",))


def check_impl(impl: Any) -> None:
    """Refuse an implementation that does not exist."""
    if impl not in IMPLEMENTATIONS:
        raise ArgumentError(f"impl={impl!r} is unknown; allowed are {', '.join(map(repr, IMPLEMENTATIONS))}")


def choose_for(call: Call, *, impl: Implementation, need_logsumexp: bool) -> Choice:
    """Return the choice for a checked call.

    Raises:
        UnsupportedError: `impl="cpu"` or `"reference"` was asked for what it does not do.

    """
    check_impl(impl)
    return choose_on(route_of(call), call, impl=impl, need_logsumexp=need_logsumexp)


def choose_on(route: Route, call: Call, *, impl: Implementation, need_logsumexp: bool) -> Choice:
    """Return the choice for a call that goes this way.

    Raises:
        UnsupportedError: as `choose_for`.

    """
    if impl == "reference":
        if route.watcher is not None:
            raise UnsupportedError(
                f'impl="reference" works on NumPy arrays, and {route.watcher.text}, which does not see them; '
                'use impl="auto"'
            )
        return Choice("reference", "reference", ("the caller named it",))
    if impl != "torch":
        missing = kernel.why_not(call)
        if route.kind == "operations":
            missing = (*missing, _unseen(route))
        if not missing:
            return _KERNEL
        if impl == "cpu":
            raise UnsupportedError(
                f'impl="cpu" cannot compute this call: {"; ".join(missing)}; '
                'use impl="auto", which falls back on torch'
            )
    if route.kind == "operations":
        return Choice("torch", "plain", (_unseen(route),))
    obstacles = fused.why_not(call, need_logsumexp=need_logsumexp)
    return Choice("torch", "plain", obstacles) if obstacles else _FUSED


def refuse(call: Call, impl: Implementation) -> None:
    """Refuse a call through the operator that `impl` does not compute.

    Raises:
        UnsupportedError: `impl="cpu"` was asked for what the kernel does not do.

    """
    if impl == "cpu":
        choose_on(DIRECT, call, impl=impl, need_logsumexp=True)


def _unseen(route: Route) -> str:
    """Return who would lose sight of a call that a kernel computes."""
    who = "" if route.watcher is None else route.watcher.text
    return f"{who}, which would not see what a kernel does"
