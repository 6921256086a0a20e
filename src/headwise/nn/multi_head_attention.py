"""The multi-head attention layer: four projections around the operator."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from headwise.counts import checked_size
from headwise.errors import ArgumentError
from headwise.layout import HeadLayout
from headwise.ops import Implementation, attention
from headwise.ops.arguments import checked_dropout


class MultiHeadAttention(nn.Module):
    """Project, attend with every head, concatenate the heads, and mix them.

    `MHA(X) = concat(head_1 .. head_h) W_O` with `head_i = softmax(scale * Q_i K_i^T) V_i`, where Q_i is a
    slice of `q_proj(query)`, and K_i and V_i are slices of `k_proj(key)` and `v_proj(value)`.
    The projections are submodules whose forward is called, so that hooks, adapters and quantisers see them.

    Weights start Xavier uniform (Glorot and Bengio 2010, equation 16), each projection on its own, and biases
    start at 0. Dropout acts on the attention weights and only in training mode.

    Args:
        d_model: width of the query and of the output.
        num_heads: query heads.
        num_kv_heads: key and value heads, a divisor of num_heads; num_heads by default (MHA), 1 is MQA.
        head_dim: width of one query and of one key; `d_model / num_heads` by default.
        value_head_dim: width of one value; head_dim by default.
        key_dim: width of the key input; d_model by default.
        value_dim: width of the value input; key_dim by default.
        bias: whether the four projections have biases.
        dropout: share of attention weights set to 0 in training.
        device: where the parameters are made.
        dtype: dtype of the parameters.

    Raises:
        ArgumentError: a size or head count cannot be; the message names the nearest that can.

    Example:
        >>> import torch
        >>> from headwise import Causal, MultiHeadAttention
        >>> layer = MultiHeadAttention(d_model=512, num_heads=8, num_kv_heads=2)
        >>> layer(torch.randn(2, 5, 512), mask=Causal()).shape
        torch.Size([2, 5, 512])

    Source: Vaswani et al. 2017, section 3.2.2; Ainslie et al. 2023, section 2.2, for grouped heads.

    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        value_head_dim: int | None = None,
        key_dim: int | None = None,
        value_dim: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.layout = HeadLayout.of_width(
            d_model, num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim, value_head_dim=value_head_dim
        )
        self.d_model = d_model
        self.key_dim = d_model if key_dim is None else checked_size("key_dim", key_dim)
        self.value_dim = self.key_dim if value_dim is None else checked_size("value_dim", value_dim)
        self.dropout = checked_dropout(dropout)
        linear = partial(nn.Linear, bias=bias, device=device, dtype=dtype)
        self.q_proj = linear(d_model, self.layout.query_width)
        self.k_proj = linear(self.key_dim, self.layout.key_width)
        self.v_proj = linear(self.value_dim, self.layout.value_width)
        self.out_proj = linear(self.layout.output_width, d_model)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew: Xavier uniform, biases 0."""
        for projection in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            nn.init.xavier_uniform_(projection.weight)
            if projection.bias is not None:
                nn.init.zeros_(projection.bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        mask: Any = None,
        bias: Any = None,
        impl: Implementation = "auto",
    ) -> Tensor:
        """Return the mixed heads, `[batch, seq_len, d_model]`.

        Args:
            query: `[batch, seq_len, d_model]`.
            key: `[batch, kv_len, key_dim]`; query by default, which is self-attention.
            value: `[batch, kv_len, value_dim]`; key by default.
            mask: as in `headwise.attention`: `Causal()`, `Lengths(...)`, a boolean tensor in which True means
                may attend, or a float tensor; rank 3 is (batch, seq, kv).
            bias: float tensor added to the scores, its shape read as a mask's is.
            impl: as in `headwise.attention`.

        Raises:
            ArgumentError: a shape does not fit, or value is given without key.

        """
        if key is None and value is not None:
            raise ArgumentError("value is given without key; pass both, or neither for self-attention")
        key = query if key is None else key
        value = key if value is None else value
        self._check_inputs(query, key, value)
        mixed = attention(
            self._heads(self.q_proj(query), self.layout.num_heads),
            self._heads(self.k_proj(key), self.layout.num_kv_heads),
            self._heads(self.v_proj(value), self.layout.num_kv_heads),
            mask=mask,
            bias=bias,
            dropout=self.dropout if self.training else 0.0,
            impl=impl,
        )
        # [batch, num_heads, seq_len, value_head_dim] -> [batch, seq_len, num_heads * value_head_dim]
        output: Tensor = self.out_proj(mixed.transpose(1, 2).flatten(2))
        return output

    def extra_repr(self) -> str:
        """Return the sizes, for `print`."""
        layout = self.layout
        return (
            f"d_model={self.d_model}, num_heads={layout.num_heads}, num_kv_heads={layout.num_kv_heads}, "
            f"head_dim={layout.head_dim}, value_head_dim={layout.value_head_dim}, dropout={self.dropout}"
        )

    def _check_inputs(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        widths = {"query": self.d_model, "key": self.key_dim, "value": self.value_dim}
        for (name, width), tensor in zip(widths.items(), (query, key, value), strict=True):
            if tensor.dim() != 3 or tensor.shape[2] != width:
                raise ArgumentError(
                    f"{name} has shape {tuple(tensor.shape)}; it must be [batch, length, {width}]; "
                    "batch comes first, and key_dim and value_dim set the widths of key and value"
                )

    @staticmethod
    def _heads(projected: Tensor, count: int) -> Tensor:
        # [batch, length, count * width] -> [batch, count, length, width]
        batch, length, width = projected.shape
        return projected.reshape(batch, length, count, width // count).transpose(1, 2)
