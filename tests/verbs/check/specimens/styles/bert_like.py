"""An encoder's attention: the padding comes as an additive mask, the probabilities go out beside the rows."""

import torch
from torch import nn


class BertSelfAttention(nn.Module):
    def __init__(self, hidden_size, num_attention_heads, dropout=0.1):
        super().__init__()
        self.num_attention_heads = num_attention_heads
        self.attention_head_size = hidden_size // num_attention_heads
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size)
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.dropout = nn.Dropout(dropout)

    def for_scores(self, rows):
        rows = rows.reshape(*rows.shape[:2], self.num_attention_heads, self.attention_head_size)
        return rows.permute(0, 2, 1, 3)

    def forward(self, hidden_states, attention_mask=None):
        """attention_mask: [batch, 1, 1 or seq_len, seq_len], 0 where seen and a very low number elsewhere."""
        q = self.for_scores(self.query(hidden_states))
        k = self.for_scores(self.key(hidden_states))
        v = self.for_scores(self.value(hidden_states))

        scores = torch.einsum("bhid,bhjd->bhij", q, k)
        scores = scores / self.attention_head_size**0.5
        if attention_mask is not None:
            scores = scores + attention_mask

        probs = scores.softmax(dim=-1)
        context = torch.einsum("bhij,bhjd->bhid", self.dropout(probs), v)
        context = context.permute(0, 2, 1, 3)
        context = context.reshape(hidden_states.shape)
        return self.dense(context), probs
