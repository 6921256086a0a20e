"""The attention operator: check, choose, compute."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from headwise.ops import arguments, by_reference, fused, kernel, plain, through_operator
from headwise.ops.choice import Choice, Implementation, check_impl, choose_for, choose_on
from headwise.ops.dropout import seeded
from headwise.ops.results import AttentionResult
from headwise.ops.routes import route_of


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
    """Return multi-head attention: `softmax(scale * query key^T + bias) value` for every head.

    Exact, whatever computes it: `headwise.reference` is the definition. Query head h reads KV head
    `h // (num_heads // num_kv_heads)`, so MHA, GQA and MQA differ in num_kv_heads only. A row that sees no
    key is 0; a hidden key or value is never read, not even NaN.

    Args:
        query: `[batch, num_heads, seq_len, head_dim]`, float32, float64, bfloat16 or float16, any strides.
        key: `[batch, num_kv_heads, kv_len, head_dim]`.
        value: `[batch, num_kv_heads, kv_len, value_head_dim]`.
        mask: which keys each query sees: a mask object such as `Causal() & Lengths([3, 5])`, a boolean tensor
            (True means may attend), a float tensor (-inf hides, any finite number is added), or None for all.
            Rank 2 (seq, kv), 3 (batch, seq, kv) or 4 (batch, head, seq, kv); sizes of 1 broadcast.
        bias: float tensor added to the scores, its shape read as a mask's is; -inf hides.
        scale: multiplies the scores; `head_dim ** -0.5` by default.
        softcap: if given, scores become `softcap * tanh(score / softcap)` before bias and mask.
        sinks: `[num_heads]`, one logit per query head, which joins its denominators and adds no value.
        head_gates: `[num_heads]` or `[batch, num_heads]`, factors of the head outputs; 0 removes a head.
        dropout: share of weights set to 0 while the others grow by `1 / (1 - dropout)`; applied whenever it
            is not 0, so pass 0 outside training.
        impl: `"auto"`, `"cpu"` (headwise's own kernel, the same bits every time), `"torch"` or `"reference"`;
            a named one runs or raises, and `choose` says what `"auto"` takes and why.

    Returns:
        `[batch, num_heads, seq_len, value_head_dim]` in the dtype of query.

    Raises:
        ArgumentError: an argument has a type, shape, dtype, device or value that is not allowed.
        UnsupportedError: `impl="cpu"` or `"reference"` was asked for what it does not do.

    Example:
        >>> import torch
        >>> from headwise import Causal, attention
        >>> query, key, value = torch.randn(2, 8, 5, 64), torch.randn(2, 2, 5, 64), torch.randn(2, 2, 5, 64)
        >>> attention(query, key, value, mask=Causal()).shape
        torch.Size([2, 8, 5, 64])

    Source: Vaswani et al. 2017, equation 1; Ainslie et al. 2023 for grouped heads; the Gemma 2 report,
    section 2, for softcap; Xiao et al. 2023 for sinks.

    """
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
    call = seeded(call)
    route = route_of(call)
    if route.kind == "operator" and impl != "reference":
        followed = route.watcher is not None
        return through_operator.attend(call, impl=impl, need_logsumexp=False, is_followed=followed).output
    match choose_on(route, call, impl=impl, need_logsumexp=False).path:
        case "kernel":
            return kernel.attend(call)
        case "fused":
            return fused.attend(call)
        case "plain":
            return plain.attend(call).output
        case "reference":
            return by_reference.attend(call, mask, bias).output


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
    """Return what `attention` returns and the logsumexp of every row, with which `merge` joins parts.

    logsumexp is the natural logarithm of each row's softmax denominator, sinks included:
    `exp(score - logsumexp)` is a weight. It is -inf for a row that sees no key. The arguments are those of
    `attention`.

    Returns:
        `AttentionResult(output, logsumexp)`, logsumexp `[batch, num_heads, seq_len]` in float32 (float64 for
        float64).

    Raises:
        ArgumentError: an argument has a type, shape, dtype, device or value that is not allowed.
        UnsupportedError: `impl="cpu"` or `"reference"` was asked for what it does not do.

    Example:
        >>> import torch
        >>> from headwise import attention_with_logsumexp
        >>> query, key, value = torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 3, 4), torch.zeros(1, 1, 3, 4)
        >>> attention_with_logsumexp(query, key, value).logsumexp  # log(3)
        tensor([[[1.0986]]])

    """
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
    call = seeded(call)
    route = route_of(call)
    if route.kind == "operator" and impl != "reference":
        followed = route.watcher is not None
        return through_operator.attend(call, impl=impl, need_logsumexp=True, is_followed=followed)
    match choose_on(route, call, impl=impl, need_logsumexp=True).path:
        case "kernel":
            return kernel.attend_with_logsumexp(call)
        case "reference":
            return by_reference.attend(call, mask, bias)
        case _:
            return plain.attend(call)


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
    """Return which implementation would run this call, and why, without running it.

    The arguments are those of `attention`, and `need_logsumexp=True` chooses for `attention_with_logsumexp`.
    The numbers in the tensors are looked at too: NaN and infinity are not for every path.

    Raises:
        ArgumentError: an argument has a type, shape, dtype, device or value that is not allowed.
        UnsupportedError: `impl="cpu"` was asked for what it does not do.

    Example:
        >>> import torch
        >>> from headwise import choose
        >>> query, key, value = torch.randn(3, 1, 2, 5, 64).unbind()
        >>> choose(query, key, value, softcap=50.0, impl="torch")
        Choice(impl='torch', path='plain', reasons=('softcap: the fused kernel has none',))

    """
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
