"""Llama as first published: neighbours turned as complex numbers, before tokens and heads change places."""

import torch
from torch import nn


def rotate(x, first, theta):
    """x: [batch, tokens, heads, head_dim]; `first` is the position of the first token."""
    speed = theta ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1])
    angle = torch.outer(torch.arange(first, first + x.shape[1]), speed)
    turns = torch.polar(torch.ones_like(angle), angle)[:, None, :]
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turns).flatten(-2).type_as(x)


class Attention(nn.Module):
    def __init__(self, dim, n_heads, n_kv_heads, theta=10000.0):
        super().__init__()
        self.n_heads = n_heads
        self.n_kv_heads = n_kv_heads
        self.head_dim = dim // n_heads
        self.theta = theta
        self.wq = nn.Linear(dim, n_heads * self.head_dim, bias=False)
        self.wk = nn.Linear(dim, n_kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(dim, n_kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(n_heads * self.head_dim, dim, bias=False)

    def forward(self, x):
        tokens = x.shape[1]
        xq = self.wq(x).unflatten(-1, (self.n_heads, -1))
        xk = self.wk(x).unflatten(-1, (self.n_kv_heads, -1))
        xv = self.wv(x).unflatten(-1, (self.n_kv_heads, -1))
        xq, xk = rotate(xq, 0, self.theta), rotate(xk, 0, self.theta)

        xq, xk, xv = xq.transpose(1, 2), xk.transpose(1, 2), xv.transpose(1, 2)
        groups = self.n_heads // self.n_kv_heads
        xk = xk.repeat_interleave(groups, dim=1)
        xv = xv.repeat_interleave(groups, dim=1)
        scores = (xq @ xk.mT) / self.head_dim**0.5
        future = torch.full((tokens, tokens), float("-inf")).triu(1)
        probs = (scores + future).softmax(dim=-1)
        return self.wo((probs @ xv).transpose(1, 2).flatten(2))
