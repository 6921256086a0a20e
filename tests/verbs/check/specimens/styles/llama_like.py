"""A Llama block's attention: grouped KV heads, rotary positions in halves, a growing cache."""

import torch
from torch import nn


def swap_halves(x):
    front, back = x.chunk(2, dim=-1)
    return torch.cat((-back, front), dim=-1)


def rotated(x, cos, sin):
    return x * cos + swap_halves(x) * sin


class LlamaAttention(nn.Module):
    def __init__(self, hidden_size, num_heads, num_kv_heads, head_dim, rope_theta=10000.0):
        super().__init__()
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.head_dim = head_dim
        self.rope_theta = rope_theta
        self.q_proj = nn.Linear(hidden_size, num_heads * head_dim, bias=False)
        self.k_proj = nn.Linear(hidden_size, num_kv_heads * head_dim, bias=False)
        self.v_proj = nn.Linear(hidden_size, num_kv_heads * head_dim, bias=False)
        self.o_proj = nn.Linear(num_heads * head_dim, hidden_size, bias=False)

    def angles(self, first, length):
        half = torch.arange(self.head_dim // 2) * 2 / self.head_dim
        positions = torch.arange(first, first + length)
        angle = positions[:, None] / self.rope_theta**half
        angle = torch.cat((angle, angle), dim=-1)
        return angle.cos(), angle.sin()

    def forward(self, hidden_states, past_key_value=None):
        batch, length, _ = hidden_states.shape
        q = self.q_proj(hidden_states).view(batch, length, self.num_heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(hidden_states).view(batch, length, self.num_kv_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(hidden_states).view(batch, length, self.num_kv_heads, self.head_dim).transpose(1, 2)

        past = 0 if past_key_value is None else past_key_value[0].shape[2]
        cos, sin = self.angles(past, length)
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        if past_key_value is not None:
            k = torch.cat((past_key_value[0], k), dim=2)
            v = torch.cat((past_key_value[1], v), dim=2)
        past_key_value = (k, v)

        n_rep = self.num_heads // self.num_kv_heads
        k, v = k.repeat_interleave(n_rep, dim=1), v.repeat_interleave(n_rep, dim=1)
        scores = torch.matmul(q, k.transpose(2, 3)) * self.head_dim**-0.5
        lowest = torch.finfo(scores.dtype).min
        mask = torch.full((length, past + length), lowest).triu(diagonal=past + 1)
        scores = scores + mask
        weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        output = torch.matmul(weights, v).transpose(1, 2).reshape(batch, length, -1)
        return self.o_proj(output), past_key_value
