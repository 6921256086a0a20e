"""Attention straight from the formula; query, key and value come split into heads."""
# ruff: noqa: PLR0917  # the order of torch's own function

import math

import torch


def attention(query, key, value, mask=None, is_causal=False, dropout_p=0.0, scale=None):
    head_dim = query.size(-1)
    seq_len, kv_len = query.size(-2), key.size(-2)
    groups = query.size(1) // key.size(1)
    key = key.repeat_interleave(groups, dim=1)
    value = value.repeat_interleave(groups, dim=1)

    factor = 1.0 / math.sqrt(head_dim) if scale is None else scale
    scores = (query * factor) @ key.transpose(-2, -1)
    if is_causal:
        allowed = torch.ones(seq_len, kv_len, dtype=torch.bool).tril(diagonal=kv_len - seq_len)
        scores = scores.masked_fill(~allowed, float("-inf"))
    if mask is not None:
        if mask.dtype == torch.bool:
            mask = torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))
        scores = scores + mask

    weights = torch.softmax(scores, dim=-1)
    if dropout_p > 0.0:
        weights = torch.dropout(weights, dropout_p, train=True)
    return weights @ value
