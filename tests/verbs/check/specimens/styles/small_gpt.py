"""A small GPT's attention: one fused projection, then blocks of query, key and value; a mask as a buffer."""
# ruff: noqa: N812, PLR0917  # as most people write it

import math

import torch
from torch import nn
from torch.nn import functional as F


class CausalSelfAttention(nn.Module):
    def __init__(self, n_embd, n_head, block_size=64, dropout=0.0, flash=False, window=None):
        super().__init__()
        if n_embd % n_head:
            raise ValueError("n_head must divide n_embd")
        self.n_head = n_head
        self.dropout = dropout
        self.flash = flash
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)
        self.drop = nn.Dropout(dropout)
        triangle = torch.ones(block_size, block_size).tril()
        if window is not None:
            triangle = triangle.triu(-(window - 1))
        self.register_buffer("triangle", triangle.bool())

    def as_heads(self, t):
        return t.view(t.shape[0], t.shape[1], self.n_head, -1).transpose(1, 2)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.c_attn(x).split(c, dim=2)
        q, k, v = self.as_heads(q), self.as_heads(k), self.as_heads(v)
        if self.flash:
            p = self.dropout if self.training else 0.0
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        else:
            att = q @ k.transpose(-2, -1)
            att = att / math.sqrt(k.shape[-1])
            att = att.masked_fill(~self.triangle[:n, :n], float("-inf"))
            att = F.softmax(att, dim=-1)
            att = self.drop(att)
            y = att @ v
        y = y.transpose(1, 2).reshape(b, n, c)
        return self.c_proj(y)
