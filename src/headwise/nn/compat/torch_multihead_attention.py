"""The stand-in for `torch.nn.MultiheadAttention`."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from headwise.masks import Sizes
from headwise.nn.compat import nested
from headwise.nn.compat.inputs import check_inputs, check_sizes
from headwise.nn.compat.torch_masks import read_masks
from headwise.nn.compat.weights import attention_with_weights
from headwise.nn.given import check_kinds, check_weights_take
from headwise.ops import attention
from headwise.ops.fitting import checked_dropout


class TorchMultiheadAttention(nn.MultiheadAttention):
    """`torch.nn.MultiheadAttention` computed by headwise: same constructor, call and state_dict.

    The parameters are made and named by torch's own constructor and start with the same numbers from the same
    seed, so checkpoints load both ways. What differs:

    - The output does not depend on `need_weights`, on training or evaluation, or on whether a gradient is
      taken. The weights returned are those before dropout.
    - A row that sees no key is 0 before the output projection, its weights are 0, its gradients are 0; in
      torch they are NaN.
    - `is_causal=True` is enough and no hint: query i sees key i and those before it, whatever else masks say.
    - Masks may be of unequal dtype; an attn_mask may also be `[batch, seq_len, kv_len]` or rank 4.
    - The keys that `add_bias_kv` and `add_zero_attn` add are seen by every query, in causal order too.
    - Nested tensors are taken in training too, and in both layouts; `need_weights` must be False for them.
    - `out_proj` is called, so that hooks and adapters see it. torch's encoder layers call this module in
      evaluation too, instead of reading its weights.
    - `torch.compile` and `torch.export` take it, `torch.jit.script` does not; dropout must be below 1.

    Args:
        embed_dim: width of the query and of the output, divided among the heads.
        num_heads: heads.
        dropout: share of attention weights set to 0 in training.
        bias: whether the projections have biases.
        add_bias_kv: whether a learned key and value stand behind those given.
        add_zero_attn: whether a key and a value of zeros do.
        kdim: width of the key input; embed_dim by default.
        vdim: width of the value input; embed_dim by default.
        batch_first: whether tensors are `[batch, length, width]`; `[length, batch, width]` by default.
        device: where the parameters are made.
        dtype: dtype of the parameters.

    Raises:
        ArgumentError: a size or head count cannot be; the message names the nearest that can.

    Example:
        >>> import torch
        >>> from headwise.nn.compat import TorchMultiheadAttention
        >>> theirs = torch.nn.MultiheadAttention(64, 4, batch_first=True)
        >>> ours = TorchMultiheadAttention(64, 4, batch_first=True)
        >>> ours.load_state_dict(theirs.state_dict())
        <All keys matched successfully>
        >>> given = torch.randn(2, 5, 64)
        >>> torch.allclose(ours(given, given, given)[0], theirs(given, given, given)[0], atol=1e-5)
        True

    """

    def __init__(  # noqa: PLR0917  # torch's own order
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_sizes(embed_dim, num_heads, kdim, vdim)
        super().__init__(
            embed_dim,
            num_heads,
            dropout=checked_dropout(dropout),
            bias=bias,
            add_bias_kv=add_bias_kv,
            add_zero_attn=add_zero_attn,
            kdim=kdim,
            vdim=vdim,
            batch_first=batch_first,
            device=device,
            dtype=dtype,
        )
        # torch's encoder layers do not call a module that says so, but compute attention from its weights.
        self._qkv_same_embed_dim = False

    def _reset_parameters(self) -> None:
        """Draw the weights anew as torch does: Xavier, uniform or, for the added key and value, normal."""
        weights = (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        for weight in weights:
            if weight is not None:
                nn.init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            nn.init.zeros_(self.in_proj_bias)
            nn.init.zeros_(self.out_proj.bias)
        for added in (self.bias_k, self.bias_v):
            if added is not None:
                nn.init.xavier_normal_(added)

    def forward(  # noqa: PLR0917  # torch's own order
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the mixed heads, shaped as query, and the weights or None.

        Args:
            query: `[seq_len, batch, embed_dim]`, or batch first if the module is; `[seq_len, embed_dim]`
                without a batch; or nested.
            key: `[kv_len, batch, kdim]`, likewise.
            value: `[kv_len, batch, vdim]`, likewise.
            key_padding_mask: `[batch, kv_len]`, or `[kv_len]` without a batch: boolean, True hides a key; or
                float, added to the scores.
            need_weights: whether to return the weights, `[batch, seq_len, kv_len]` (no batch without one),
                kv_len with the added keys.
            attn_mask: boolean, True means may not attend, or float, added to the scores; `[seq_len, kv_len]`,
                `[batch * num_heads, seq_len, kv_len]`, `[batch, seq_len, kv_len]` or rank 4.
            average_attn_weights: whether the weights are the mean over the heads, or
                `[batch, num_heads, seq_len, kv_len]`.
            is_causal: whether query i sees key i and those before it only.

        Raises:
            ArgumentError: a shape or dtype does not fit.

        """
        check_kinds({"query": query, "key": key, "value": value})
        if query.is_nested or key.is_nested or value.is_nested:
            given = {
                "key_padding_mask": key_padding_mask is not None,
                "attn_mask": attn_mask is not None,
                "need_weights=True (the default)": need_weights,
                "add_bias_kv": self.bias_k is not None,
                "add_zero_attn": self.add_zero_attn,
            }
            nested.check_call([name for name, holds in given.items() if holds])
            return self._attend_nested(query, key, value, is_causal=is_causal), None
        check_inputs(query, key, value, widths=self._widths, batch_first=self.batch_first)
        if query.dim() == 2 and isinstance(key_padding_mask, Tensor) and key_padding_mask.dim() == 1:
            key_padding_mask = key_padding_mask[None]
        batch, seq_len, _ = self._batch_first(query).shape
        mask = read_masks(
            key_padding_mask,
            attn_mask,
            is_causal=is_causal,
            sizes=Sizes(batch, self.num_heads, seq_len, self._batch_first(key).shape[1]),
            added_keys=(self.bias_k is not None) + self.add_zero_attn,
            device=query.device,
        )
        heads = self._heads(query, key, value)
        if not need_weights:
            output = attention(*heads, mask=mask, dropout=self._dropout)
            return self.out_proj(self._as_given(output, query)), None
        output, weights = attention_with_weights(
            *heads, mask=mask, dropout=self._dropout, average=average_attn_weights
        )
        weights = weights.to(output.dtype)
        return self.out_proj(self._as_given(output, query)), weights if query.dim() == 3 else weights[0]

    def _attend_nested(self, query: Tensor, key: Tensor, value: Tensor, *, is_causal: bool) -> Tensor:
        """Return the mixed heads of nested inputs, nested: all texts are one row, and none sees another."""
        queries, keys, values = nested.joined(query=query, key=key, value=value)
        tokens = queries.tokens, keys.tokens, values.tokens
        check_inputs(*tokens, widths=self._widths, batch_first=self.batch_first)
        heads = self._heads(*tokens)
        mask = nested.packed(queries, keys, is_causal=is_causal)
        output = attention(*heads, mask=mask, dropout=self._dropout)
        return nested.parted(self.out_proj(self._as_given(output, queries.tokens)), query)

    def _heads(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the projected heads, each `[batch, num_heads, length, head_dim]`, with the added keys."""
        projected = self._projected(query, key, value)
        query, key, value = (self._split(self._batch_first(each)) for each in projected)
        return query, self._with_added(key, self.bias_k), self._with_added(value, self.bias_v)

    def _split(self, projected: Tensor) -> Tensor:
        # [batch, length, num_heads * head_dim] -> [batch, num_heads, length, head_dim]
        return projected.reshape(*projected.shape[:2], self.num_heads, self.head_dim).transpose(1, 2)

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        # Each parameter is read once: a parametrization makes it anew each time.
        packed, bias = self.in_proj_weight, self.in_proj_bias
        weights = self._in_weights(packed)
        check_weights_take({"query": query, "key": key, "value": value}, weights)
        if query is key is value and packed is not None:
            return functional.linear(query, packed, bias).chunk(3, dim=-1)
        biases = (None,) * 3 if bias is None else bias.chunk(3)
        inputs = zip((query, key, value), weights, biases, strict=True)
        return tuple(functional.linear(given, weight, bias) for given, (_, weight), bias in inputs)

    @property
    def _dropout(self) -> float:
        return self.dropout if self.training else 0.0

    @property
    def _widths(self) -> tuple[int, int, int]:
        return self.embed_dim, self.kdim, self.vdim

    def _in_weights(self, packed: Tensor | None) -> list[tuple[str, Tensor]]:
        if packed is not None:
            return [("in_proj_weight", part) for part in packed.chunk(3)]
        return [(name, getattr(self, name)) for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight")]

    def _with_added(self, heads: Tensor, bias: Tensor | None) -> Tensor:
        """Return the keys (or values) and behind them the learned one and the zeros, where there are any."""
        batch = heads.shape[0]
        parts = [heads]
        if bias is not None:
            # [1, 1, num_heads * head_dim] -> [batch, num_heads, 1, head_dim]
            added = bias.to(heads.dtype).view(1, self.num_heads, 1, self.head_dim)
            parts.append(added.expand(batch, -1, -1, -1))
        if self.add_zero_attn:
            parts.append(heads.new_zeros(batch, self.num_heads, 1, self.head_dim))
        return torch.cat(parts, dim=2) if len(parts) > 1 else heads

    def _batch_first(self, given: Tensor) -> Tensor:
        """Return `given`, as the caller lays it out, as `[batch, length, width]`."""
        if given.dim() == 2:
            return given[None]
        return given if self.batch_first else given.transpose(0, 1)

    def _as_given(self, output: Tensor, query: Tensor) -> Tensor:
        """Return `[batch, num_heads, seq_len, head_dim]` with the heads joined and laid out as query."""
        output = output.transpose(1, 2).flatten(2)
        if query.dim() == 2:
            return output[0]
        return output if self.batch_first else output.transpose(0, 1)
