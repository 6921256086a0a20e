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
    sizes, tensors = call.sizes, (call.query, call.key, call.value)
    reasons = {
        "logsumexp is asked for; the fused kernel returns none": need_logsumexp,
        "sinks: the fused kernel has none": call.sinks is not None,
        "softcap: the fused kernel has none": call.softcap is not None,
        "dropout: torch would repeat the KV heads and store all weights": call.dropout > 0,
        "value_head_dim differs from head_dim": call.value.shape[3] != call.key.shape[3],
        "a size is 0": 0 in (sizes.batch, sizes.seq_len, sizes.kv_len),
        "the bias requires a gradient": torch.is_grad_enabled()
        and any(bias.requires_grad for bias in call.visibility.additive),
        f"device {call.query.device.type}: the fused kernels were measured on cpu only": call.query.device.type
        != "cpu",
    }
    found = [reason for reason, holds in reasons.items() if holds]
    if not found and not call.visibility.hides_nothing and not nonfinite.all_finite(*tensors):
        found.append("NaN or inf in the inputs beside a mask: the fused kernel lets it leak")
    return tuple(found)


def attend(call: Call) -> Tensor:
    """Return the output of the whole call."""
    visibility = call.visibility
    # In 16 bits the kernel rounds the weights before the weighted sum; in float32 only the output is rounded.
    query, key, value = (
        tensor.to(call.compute_dtype).contiguous() for tensor in (call.query, call.key, call.value)
    )
    with torch.autocast(call.query.device.type, enabled=False):
        output = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=None if visibility.is_square_causal else _mask(call),
            is_causal=visibility.is_square_causal,
            scale=call.scale,
            enable_gqa=call.group_size > 1,
        )
    if call.head_gates is not None:
        output = output * call.head_gates[..., None, None]
    return output.to(call.query.dtype)


def _mask(call: Call) -> Tensor | None:
    rows = slice(0, call.sizes.seq_len)
    hidden = call.visibility.hidden(rows)
    bias = call.visibility.bias(rows, hidden, call.compute_dtype)
    if hidden is None:
        return None
    return ~hidden if bias is None else bias.centred.masked_fill(hidden, -torch.inf)
