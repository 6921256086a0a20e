"""Ported from JAX, whose axes are batch, tokens, heads, head_dim. KV heads are grouped, not repeated."""

import torch


def _causal(t, s):
    rows = torch.arange(t)[:, None] + (s - t)
    return torch.arange(s)[None, :] <= rows


def dot_product_attention(query, key, value, bias=None, mask=None, *, scale=None, is_causal=False):
    """query BTNH, key and value BSKH, bias and mask broadcast to BNTS."""
    b, t, n, h = query.shape
    s, k = key.shape[1], key.shape[2]
    scale = h**-0.5 if scale is None else scale

    grouped = query.reshape(b, t, k, n // k, h)
    logits = torch.einsum("btkgh,bskh->bkgts", grouped, key)
    logits = logits.reshape(b, n, t, s) * scale
    if bias is not None:
        logits = logits + bias
    lowest = -0.7 * torch.finfo(logits.dtype).max
    if mask is not None:
        logits = torch.where(mask, logits, lowest)
    if is_causal:
        logits = torch.where(_causal(t, s), logits, lowest)

    probs = logits.softmax(dim=3)
    probs = probs.reshape(b, k, n // k, t, s)
    out = torch.einsum("bkgts,bskh->btkgh", probs, value)
    return out.reshape(b, t, n, value.shape[-1])
