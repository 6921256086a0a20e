"""Each head's query, key and value side by side in one map, neighbours turned, a cache handed back."""

import torch
from torch import nn


def turn(x, positions, base):
    """Turn neighbouring elements 2i and 2i + 1 by position / base ** (2i / head_dim)."""
    dim = x.shape[-1]
    speed = base ** (-torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    angle = positions[:, None] * speed
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], dim // 2, 2).contiguous())
    turned = torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle))
    return turned.flatten(-2).type_as(x)


class FusedRotaryAttention(nn.Module):
    def __init__(self, width: int, n_heads: int, base: float = 10_000.0):
        super().__init__()
        self.n_heads = n_heads
        self.head_width = width // n_heads
        self.base = base
        self.query_key_value = nn.Linear(width, 3 * width)
        self.dense = nn.Linear(width, width)

    def forward(self, x, cache=None):
        batch, length, width = x.shape
        mixed = self.query_key_value(x).view(batch, length, self.n_heads, 3 * self.head_width)
        q, k, v = mixed.transpose(1, 2).chunk(3, dim=-1)

        seen = 0 if cache is None else cache["key"].size(2)
        positions = torch.arange(seen, seen + length)
        q, k = turn(q, positions, self.base), turn(k, positions, self.base)
        if cache is not None:
            k = torch.cat([cache["key"], k], dim=2)
            v = torch.cat([cache["value"], v], dim=2)

        keys = torch.arange(seen + length)
        visible = keys[None, :] <= positions[:, None]
        scores = torch.einsum("bhid,bhjd->bhij", q, k) / self.head_width**0.5
        scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
        out = torch.einsum("bhij,bhjd->bhid", scores.softmax(-1), v)
        out = out.transpose(1, 2).reshape(batch, length, width)
        return self.dense(out), {"key": k, "value": v}
