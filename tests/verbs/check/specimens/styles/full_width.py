"""Heads are split inside the function: everything comes in and goes out at full width."""
# ruff: noqa: PLR0917, N812  # as most people write it

import torch
from torch.nn import functional as F


def split_heads(x, num_heads):
    batch, length, width = x.shape
    return x.view(batch, length, num_heads, width // num_heads).transpose(1, 2)


def merge_heads(x):
    batch, num_heads, length, head_dim = x.shape
    return x.transpose(1, 2).reshape(batch, length, num_heads * head_dim)


def multi_head_attention(query, key, value, num_heads, attn_mask=None, key_padding_mask=None):
    """attn_mask: [seq_len, kv_len], True where a query may look; key_padding_mask: True at padding."""
    q, k, v = (split_heads(each, num_heads) for each in (query, key, value))
    scores = torch.matmul(q, k.transpose(2, 3)) / q.shape[-1] ** 0.5
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -1e9)
    if key_padding_mask is not None:
        scores = scores.masked_fill(key_padding_mask[:, None, None, :], -1e9)
    attention = F.softmax(scores, dim=-1)
    return merge_heads(torch.matmul(attention, v))
