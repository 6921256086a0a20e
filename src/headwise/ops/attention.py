"""The attention operator: check, choose, compute."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from headwise.ops import arguments, exact, fused, plain
from headwise.ops.choice import Choice, Implementation, check_impl, choose_for
from headwise.ops.results import AttentionResult


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    head_gates: Tensor | None = None,
    dropout: float = 0.0,
    impl: Implementation = "auto",
) -> Tensor:
    """Return multi-head attention, exact: `softmax(scale * query key^T + bias) value` for every head."""
    check_impl(impl)
    call = arguments.check(
        query,
        key,
        value,
        mask=mask,
        bias=bias,
        scale=scale,
        softcap=softcap,
        sinks=sinks,
        head_gates=head_gates,
        dropout=dropout,
    )
    choice = choose_for(call, impl=impl, need_logsumexp=False)
    if choice.path == "reference":
        return exact.attend(call, mask, bias).output
    return fused.attend(call) if choice.path == "fused" else plain.attend(call).output


def attention_with_logsumexp(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    head_gates: Tensor | None = None,
    dropout: float = 0.0,
    impl: Implementation = "auto",
) -> AttentionResult:
    """Return what `attention` returns, and the logsumexp of every row."""
    check_impl(impl)
    call = arguments.check(
        query,
        key,
        value,
        mask=mask,
        bias=bias,
        scale=scale,
        softcap=softcap,
        sinks=sinks,
        head_gates=head_gates,
        dropout=dropout,
    )
    choice = choose_for(call, impl=impl, need_logsumexp=True)
    return exact.attend(call, mask, bias) if choice.path == "reference" else plain.attend(call)


def choose(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    head_gates: Tensor | None = None,
    dropout: float = 0.0,
    impl: Implementation = "auto",
    need_logsumexp: bool = False,
) -> Choice:
    """Return which implementation would run this call, and why, without running it."""
    call = arguments.check(
        query,
        key,
        value,
        mask=mask,
        bias=bias,
        scale=scale,
        softcap=softcap,
        sinks=sinks,
        head_gates=head_gates,
        dropout=dropout,
    )
    return choose_for(call, impl=impl, need_logsumexp=need_logsumexp)
