"""A plain stand-in for a fused kernel, with its signature; axes batch, tokens, heads, head_dim."""
# ruff: noqa: PLR0917  # the kernel's own order of arguments

import torch


def flash_attention(
    q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0
):
    softmax_scale = q.shape[-1] ** (-0.5) if softmax_scale is None else softmax_scale
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    n_rep = q.shape[1] // k.shape[1]
    k = k[:, :, None].expand(-1, -1, n_rep, -1, -1).flatten(1, 2)
    v = v[:, :, None].expand(-1, -1, n_rep, -1, -1).flatten(1, 2)

    attn = torch.matmul(q, k.mT) * softmax_scale
    if softcap > 0:
        attn = softcap * torch.tanh(attn / softcap)

    left, right = window_size
    if causal:
        right = 0
    rows = torch.arange(q.shape[2]).unsqueeze(1) + k.shape[2] - q.shape[2]
    cols = torch.arange(k.shape[2]).unsqueeze(0)
    hidden = torch.zeros(q.shape[2], k.shape[2], dtype=torch.bool)
    if left >= 0:
        hidden |= cols < rows - left
    if right >= 0:
        hidden |= cols > rows + right
    attn = attn.masked_fill(hidden, -torch.inf)

    p = attn.softmax(-1)
    p = torch.nn.functional.dropout(p, dropout_p)
    return torch.matmul(p, v).transpose(1, 2)
