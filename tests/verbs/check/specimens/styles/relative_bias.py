"""T5's attention: unscaled scores, a bias of each head, cross attention by the same call."""

import torch
from torch import nn


class T5Attention(nn.Module):
    def __init__(self, d_model, d_kv, num_heads):
        super().__init__()
        self.n_heads = num_heads
        self.key_value_proj_dim = d_kv
        self.inner_dim = num_heads * d_kv
        self.q = nn.Linear(d_model, self.inner_dim, bias=False)
        self.k = nn.Linear(d_model, self.inner_dim, bias=False)
        self.v = nn.Linear(d_model, self.inner_dim, bias=False)
        self.o = nn.Linear(self.inner_dim, d_model, bias=False)

    def forward(self, hidden_states, key_value_states=None, position_bias=None, mask=None):
        """position_bias: [1, num_heads, seq_len, kv_len]; mask: 0 and very low numbers, added."""
        context = hidden_states if key_value_states is None else key_value_states

        def shape(states):
            return states.unflatten(-1, (self.n_heads, self.key_value_proj_dim)).transpose(1, 2)

        query_states = shape(self.q(hidden_states))
        key_states = shape(self.k(context))
        value_states = shape(self.v(context))
        scores = torch.einsum("bnqd,bnkd->bnqk", query_states, key_states)
        if position_bias is not None:
            scores = scores + position_bias
        if mask is not None:
            scores = scores + mask
        weights = torch.softmax(scores.float(), dim=-1).type_as(scores)
        output = torch.matmul(weights, value_states)
        return self.o(output.transpose(1, 2).flatten(2))
