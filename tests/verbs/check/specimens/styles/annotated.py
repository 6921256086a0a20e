"""Written beside the paper: query, key and value each have a linear map; the mask holds zeros and ones."""

import math

import torch
from torch import nn


def scaled_dot_product(query, key, value, mask, dropout):
    scores = torch.matmul(query, key.transpose(-2, -1))
    scores = scores / math.sqrt(query.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    probabilities = torch.softmax(scores, dim=-1)
    dropped = dropout(probabilities)
    return torch.matmul(dropped, value), probabilities


class MultiHeadedAttention(nn.Module):
    def __init__(self, d_model, heads, dropout=0.1):
        super().__init__()
        self.heads = heads
        self.d_k = d_model // heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def split(self, x):
        batch, length, _ = x.size()
        return x.view(batch, length, self.heads, self.d_k).transpose(1, 2)

    def forward(self, query, key, value, mask=None):
        """mask: [batch, seq_len, kv_len], 1 where a query may look and 0 where not."""
        batch, length, d_model = query.size()
        if mask is not None:
            mask = mask.unsqueeze(1)
        q, k, v = self.split(self.w_q(query)), self.split(self.w_k(key)), self.split(self.w_v(value))
        context, probabilities = scaled_dot_product(q, k, v, mask, self.dropout)
        context = context.transpose(1, 2).contiguous().view(batch, length, d_model)
        return self.w_o(context), probabilities
