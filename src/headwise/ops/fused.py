"""Attention by torch's fused kernel, `torch.nn.functional.scaled_dot_product_attention`, where it is right.

`why_not` lists what it gets wrong or cannot do; docs/decisions/0003-torch-paths.md has the measurements.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from headwise.ops import nonfinite
from headwise.ops.arguments import Call


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
    query, key, value = (
        _unit_stride(tensor.to(call.compute_dtype)) for tensor in (call.query, call.key, call.value)
    )
    is_causal = call.visibility.is_square_causal
    with torch.autocast(call.query.device.type, enabled=False):
        output = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=None if is_causal else _mask(call),
            is_causal=is_causal,
            scale=call.scale,
            enable_gqa=call.group_size > 1,
        )
    return call.gated(output).to(call.query.dtype)


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
