"""A vision transformer's attention: fused, no mask, every patch sees every patch."""

from torch import nn


class Attention(nn.Module):
    def __init__(self, dim: int, num_heads: int = 8, qkv_bias: bool = True, attn_drop: float = 0.0) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.scale = (dim // num_heads) ** -0.5
        self.qkv = nn.Linear(dim, dim * 3, bias=qkv_bias)
        self.attn_drop = nn.Dropout(attn_drop)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        batch, patches, dim = x.shape
        # [3, batch, num_heads, patches, head_dim]
        qkv = self.qkv(x).reshape(batch, patches, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        q = q * self.scale
        attn = (q @ k.transpose(-2, -1)).softmax(dim=-1)
        attn = self.attn_drop(attn)
        heads = attn @ v
        x = heads.transpose(1, 2).reshape(batch, patches, dim)
        return self.proj(x)
