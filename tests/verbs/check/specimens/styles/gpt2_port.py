"""Weights of GPT-2's first release: fused, `[in, out]`; keys and values of the past go in and come out."""

import torch
from torch import nn


class Conv1D(nn.Module):
    """A linear map under the name it had there."""

    def __init__(self, out_features, in_features):
        super().__init__()
        self.weight = nn.Parameter(0.3 * torch.randn(in_features, out_features))
        self.bias = nn.Parameter(0.1 * torch.randn(out_features))

    def forward(self, x):
        return x @ self.weight + self.bias


class Attention(nn.Module):
    def __init__(self, n_state, n_head):
        super().__init__()
        self.n_head = n_head
        self.c_attn = Conv1D(3 * n_state, n_state)
        self.c_proj = Conv1D(n_state, n_state)

    def split_heads(self, x):
        return x.unflatten(-1, (self.n_head, -1)).permute(0, 2, 1, 3)

    def merge_heads(self, x):
        return x.permute(0, 2, 1, 3).flatten(-2)

    @staticmethod
    def mask_attn_weights(w):
        rows, columns = w.shape[-2:]
        i = torch.arange(rows)[:, None]
        j = torch.arange(columns)
        b = (i >= j - columns + rows).to(w.dtype)
        return w * b - 1e10 * (1 - b)

    def multihead_attn(self, q, k, v):
        w = q @ k.mT
        w = w * (v.shape[-1] ** -0.5)
        w = self.mask_attn_weights(w)
        w = w.softmax(dim=-1)
        return w @ v

    def forward(self, x, past=None):
        c = self.c_attn(x)
        q, k, v = (self.split_heads(part) for part in c.chunk(3, dim=-1))
        if past is not None:
            past_k, past_v = past
            k = torch.cat([past_k, k], dim=-2)
            v = torch.cat([past_v, v], dim=-2)
        a = self.multihead_attn(q, k, v)
        a = self.merge_heads(a)
        a = self.c_proj(a)
        return a, (k, v)
