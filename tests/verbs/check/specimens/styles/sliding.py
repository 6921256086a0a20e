"""A Gemma-like layer: separate linears, capped scores, a window, grouped KV heads, padding."""

# ruff: noqa: PLR0917  # sizes by their place

import torch
from torch import nn


class SlidingAttention(nn.Module):
    def __init__(self, d_model, num_heads, num_kv_heads, head_dim, window=None, softcap=None):
        super().__init__()
        self.num_heads, self.num_kv_heads, self.head_dim = num_heads, num_kv_heads, head_dim
        self.window = window
        self.softcap = softcap
        self.q_proj = nn.Linear(d_model, num_heads * head_dim)
        self.k_proj = nn.Linear(d_model, num_kv_heads * head_dim)
        self.v_proj = nn.Linear(d_model, num_kv_heads * head_dim)
        self.o_proj = nn.Linear(num_heads * head_dim, d_model)

    def forward(self, x, key_padding_mask=None):
        """key_padding_mask: [batch, seq_len], True at padding."""
        batch, length, _ = x.shape
        group = self.num_heads // self.num_kv_heads
        q = self.q_proj(x).reshape(batch, length, self.num_kv_heads, group, self.head_dim)
        k = self.k_proj(x).reshape(batch, length, self.num_kv_heads, self.head_dim)
        v = self.v_proj(x).reshape(batch, length, self.num_kv_heads, self.head_dim)

        logits = torch.einsum("bikgd,bjkd->bkgij", q, k) * self.head_dim**-0.5
        if self.softcap is not None:
            logits = torch.tanh(logits / self.softcap) * self.softcap
        i = torch.arange(length)[:, None]
        j = torch.arange(length)[None, :]
        seen = j <= i
        if self.window is not None:
            seen = seen & (i - j < self.window)
        logits = logits.masked_fill(~seen, -2.0e38)
        if key_padding_mask is not None:
            logits = logits.masked_fill(key_padding_mask[:, None, None, None, :], -2.0e38)

        probs = torch.softmax(logits, dim=-1)
        mixed = torch.einsum("bkgij,bjkd->bikgd", probs, v)
        return self.o_proj(mixed.reshape(batch, length, self.num_heads * self.head_dim))
