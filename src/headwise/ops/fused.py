"""Attention by torch's fused kernel, `torch.nn.functional.scaled_dot_product_attention`, where it is right.

`why_not` lists what it gets wrong or cannot do; docs/decisions/0003-torch-paths.md has the measurements.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from headwise.ops import nonfinite, plain
from headwise.ops.arguments import Call
from headwise.ops.grouped import grouped_outer, grouped_product


def why_not(call: Call, *, need_logsumexp: bool) -> tuple[str, ...]:
    """Return the reasons, if any, why the fused kernel must not compute this call."""
    sizes, device = call.sizes, call.query.device.type
    reasons = {
        "logsumexp is asked for, and the fused kernel returns none": need_logsumexp,
        "sinks: the fused kernel has none": call.sinks is not None,
        "softcap: the fused kernel has none": call.softcap is not None,
        "dropout: torch would leave its fused kernel and repeat the KV heads": call.dropout > 0,
        f"value_head_dim {call.value.shape[3]} differs from head_dim {call.key.shape[3]}: torch would leave "
        "its fused kernel and repeat the KV heads": call.value.shape[3] != call.key.shape[3],
        "a size is 0": 0 in (sizes.batch, sizes.seq_len, sizes.kv_len),
        f"device {device}: the fused kernel was held to the conventions on cpu only": device != "cpu",
    }
    found = [reason for reason, holds in reasons.items() if holds]
    if not found and not nonfinite.surely_finite(call):
        found.append("NaN, infinity or scores that may overflow: the fused kernel leaks them or makes them 0")
    return tuple(found)


def attend(call: Call) -> Tensor:
    """Return the output of the whole call."""
    # In 16 bits the kernel would round the weights too; in float32 only the output is rounded, and no slower.
    tensors = (tensor.to(call.compute_dtype) for tensor in (call.query, call.key, call.value))
    output: Tensor = _FusedAttention.apply(call, *tensors, *call.visibility.additive)  # type: ignore[no-untyped-call]  # torch leaves apply untyped
    return call.gated(output).to(call.query.dtype)


class _FusedAttention(torch.autograd.Function):
    """The kernel forwards; backwards the weights of a block of rows are computed again, and exactly.

    The kernel's own backward takes the weights as `exp(score - logsumexp)`. Where scores are large, the
    rounding of logsumexp makes them sum to something other than 1, and every gradient is off by as much. This
    one also gives the bias a gradient, and can itself be differentiated.
    """

    @staticmethod
    def forward(call: Call, *tensors: Tensor) -> Tensor:
        call = _with_tensors(call, tensors)
        is_causal = call.visibility.is_square_causal
        with torch.autocast(call.query.device.type, enabled=False):
            return functional.scaled_dot_product_attention(
                _unit_stride(call.query),
                _unit_stride(call.key),
                _unit_stride(call.value),
                attn_mask=None if is_causal else _mask(call),
                is_causal=is_causal,
                scale=call.scale,
                enable_gqa=call.group_size > 1,
            )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        call, *tensors = inputs
        ctx.call = call
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        call = _with_tensors(ctx.call, ctx.saved_tensors)
        with torch.autocast(call.query.device.type, enabled=False):
            return None, *_gradients(call, grad_outputs[0])


def _with_tensors(call: Call, tensors: tuple[Tensor, ...]) -> Call:
    """Return the call on the tensors that autograd handed over: query, key, value and every bias."""
    query, key, value, *biases = tensors
    visibility = replace(call.visibility, additive=tuple(biases))
    return replace(call, query=query, key=key, value=value, visibility=visibility)


def _gradients(call: Call, grad_output: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients of query, key, value and every bias."""
    key, value = call.key, call.value
    grad_queries = []
    grad_key, grad_value = torch.zeros_like(key), torch.zeros_like(value)
    grad_biases = [torch.zeros_like(bias) for bias in call.visibility.additive]
    for rows in plain.row_slices(call):
        weights, _, _ = plain.weigh_rows(call, rows, key, guarded=False)
        grad_rows = grad_output[:, :, rows]
        grad_weights = grouped_product(grad_rows, value.mT)
        grad_scores = weights * (grad_weights - (weights * grad_weights).sum(-1, keepdim=True))
        grad_value = grad_value + grouped_outer(weights, grad_rows, call.num_kv_heads)
        scaled = call.scale * grad_scores
        grad_queries.append(grouped_product(scaled, key))
        grad_key = grad_key + grouped_outer(scaled, call.query[:, :, rows], call.num_kv_heads)
        for grad_bias in grad_biases:
            its_rows = grad_bias[:, :, rows] if grad_bias.shape[2] > 1 else grad_bias
            its_rows += grad_scores.sum_to_size(its_rows.shape).to(its_rows.dtype)
    return torch.cat(grad_queries, dim=2), grad_key, grad_value, *grad_biases


def _unit_stride(tensor: Tensor) -> Tensor:
    """Return the same tensor with neighbours in its last axis side by side, as the kernel wants them."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _mask(call: Call) -> Tensor | None:
    rows = slice(0, call.sizes.seq_len)
    hidden = call.visibility.hidden(rows)
    bias = call.visibility.bias(rows, hidden, call.compute_dtype)
    if hidden is None:
        return None
    return ~hidden if bias is None else bias.centred.masked_fill(hidden, -torch.inf)
