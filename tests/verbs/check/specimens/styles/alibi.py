"""A Bloom block's attention: fused per head, a slope of each head added to the scores by `baddbmm`."""

import torch
from torch import nn


class AlibiAttention(nn.Module):
    def __init__(self, hidden_size, n_head):
        super().__init__()
        self.num_heads = n_head
        self.head_dim = hidden_size // n_head
        self.inv_norm_factor = self.head_dim**-0.5
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size)
        self.dense = nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden_states, alibi=None, attention_mask=None):
        """alibi: [1 or batch, n_head, 1 or seq_len, seq_len]; attention_mask: True hides."""
        batch, length, width = hidden_states.shape
        three = self.query_key_value(hidden_states).view(batch, length, self.num_heads, 3, self.head_dim)
        q, k, v = (part.transpose(1, 2).reshape(-1, length, self.head_dim) for part in three.unbind(-2))
        if alibi is None:
            alibi = torch.zeros(1, self.num_heads, length, length)
        alibi = alibi.expand(batch, -1, length, -1).reshape(-1, length, length)
        scores = torch.baddbmm(alibi, q, k.mT, beta=1.0, alpha=self.inv_norm_factor)
        scores = scores.view(batch, self.num_heads, length, length)
        if attention_mask is not None:
            scores = scores.masked_fill(attention_mask, torch.finfo(scores.dtype).min)
        probs = torch.softmax(scores, dim=-1).view(-1, length, length)
        context = torch.bmm(probs, v).view(batch, self.num_heads, length, self.head_dim)
        return self.dense(context.permute(0, 2, 1, 3).reshape(batch, length, width))
