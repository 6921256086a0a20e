"""An exercise with nothing but matrices: weights are `[d_in, d_out]` and stand on the right of the rows."""
# ruff: noqa: PLR0917  # every matrix by its place

import torch


def mha(x, w_q, w_k, w_v, w_o, num_heads, causal=False):
    """One head after the other, as the paper writes it."""
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    d_k = w_q.shape[1] // num_heads
    tokens = x.shape[1]
    heads = []
    for i in range(num_heads):
        cols = slice(i * d_k, (i + 1) * d_k)
        q_i, k_i, v_i = q[:, :, cols], k[:, :, cols], v[:, :, cols]
        scores = torch.bmm(q_i, k_i.transpose(1, 2)) / d_k**0.5
        if causal:
            future = torch.triu(torch.ones(tokens, tokens), diagonal=1).bool()
            scores[:, future] = float("-inf")
        shifted = (scores - scores.max(dim=2, keepdim=True).values).exp()
        weights = shifted / shifted.sum(dim=2, keepdim=True)
        heads.append(torch.bmm(weights, v_i))
    together = torch.cat(heads, dim=2)
    return together @ w_o
