"""The multi-head attention layer: four projections around the operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from headwise.counts import checked_size
from headwise.evidence import Collect
from headwise.layout import HeadLayout
from headwise.nn.checks import check_combination, check_inputs, checked_rope, checked_softcap
from headwise.nn.given import check_flags, weight_of
from headwise.nn.heads import joined, normed, split
from headwise.nn.observing import checked_collect, observed_attention
from headwise.nn.seen_keys import Cache, seen_keys, unchanged_if_it_fails
from headwise.ops import Implementation, Observation, attention
from headwise.ops.fitting import checked_dropout
from headwise.rope import Rope


class MultiHeadAttention(nn.Module):
    """Project, attend with every head, concatenate the heads, and mix them.

    `MHA(X) = concat(head_1 .. head_h) W_O` with `head_i = softmax(scale * Q_i K_i^T) V_i`, where Q_i is a
    slice of `q_proj(query)`, and K_i and V_i are slices of `k_proj(key)` and `v_proj(value)`.
    The projections are submodules whose forward is called, so that hooks, adapters and quantisers see them.

    Weights start Xavier uniform (Glorot and Bengio 2010, equation 16), each projection on its own; biases and
    sinks start at 0, the scales of the norms at 1. Dropout acts on the attention weights and only in training
    mode. Queries and keys are normed, then turned to their positions, then kept in the cache.

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
        rope: rotary positions of queries and keys, such as `Rope(base=10_000.0)`; None for none.
        qk_norm: whether each head's queries and keys are RMS-normed, with scales `q_norm` and `k_norm`
            `[head_dim]` that all heads share.
        window: the keys a query sees at most, its own and those before it, as `Window.of`; None for all.
        softcap: if given, scores become `softcap * tanh(score / softcap)`.
        sinks: whether each query head has a learned logit that joins its denominators, `sinks` `[num_heads]`.
        device: where the parameters are made.
        dtype: dtype of the parameters.

    Raises:
        ArgumentError: a size, head count or option cannot be; the message names the nearest that can.

    Example:
        >>> import torch
        >>> from headwise import Causal, MultiHeadAttention
        >>> layer = MultiHeadAttention(d_model=512, num_heads=8, num_kv_heads=2)
        >>> layer(torch.randn(2, 5, 512), mask=Causal()).shape
        torch.Size([2, 5, 512])

    Source: Vaswani et al. 2017, section 3.2.2; Ainslie et al. 2023, section 2.2, for grouped heads.

    """

    q_norm: nn.RMSNorm | None
    k_norm: nn.RMSNorm | None
    sinks: nn.Parameter | None

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
        rope: Rope | None = None,
        qk_norm: bool = False,
        window: int | None = None,
        softcap: float | None = None,
        sinks: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.layout = HeadLayout.of_width(
            d_model, num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim, value_head_dim=value_head_dim
        )
        check_flags(bias=bias, qk_norm=qk_norm, sinks=sinks)
        self.d_model = d_model
        self.key_dim = d_model if key_dim is None else checked_size("key_dim", key_dim)
        self.value_dim = self.key_dim if value_dim is None else checked_size("value_dim", value_dim)
        self.dropout = checked_dropout(dropout)
        self.rope = checked_rope(rope, self.layout.head_dim)
        self.window = None if window is None else checked_size("window", window)
        self.softcap = checked_softcap(softcap)
        linear = partial(nn.Linear, bias=bias, device=device, dtype=dtype)
        self.q_proj = linear(d_model, self.layout.query_width)
        self.k_proj = linear(self.key_dim, self.layout.key_width)
        self.v_proj = linear(self.value_dim, self.layout.value_width)
        self.out_proj = linear(self.layout.output_width, d_model)
        # The constant is that of Qwen3.
        norm = partial(nn.RMSNorm, self.layout.head_dim, eps=1e-6, device=device, dtype=dtype)
        self.q_norm, self.k_norm = (norm(), norm()) if qk_norm else (None, None)
        logits = torch.empty(num_heads, device=device, dtype=dtype)
        self.register_parameter("sinks", nn.Parameter(logits) if sinks else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew: Xavier uniform; biases and sinks 0, scales of norms 1.

        For a layer made on the meta device: after `to_empty`, and after the submodules' own
        `reset_parameters`, where something calls those, for they draw as `torch.nn.Linear` does.
        """
        for projection in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            nn.init.xavier_uniform_(projection.weight)
            if projection.bias is not None:
                nn.init.zeros_(projection.bias)
        for scale in (self.q_norm, self.k_norm):
            if scale is not None:
                scale.reset_parameters()
        if self.sinks is not None:
            nn.init.zeros_(self.sinks)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        mask: Any = None,
        bias: Any = None,
        head_gates: Tensor | None = None,
        cache: Cache | None = None,
        lengths: Sequence[int] | Tensor | None = None,
        observe: Collect | None = None,
        impl: Implementation = "auto",
    ) -> Tensor | Observation:
        """Return the mixed heads, `[batch, seq_len, d_model]`, and, where it is asked for, what was observed.

        Args:
            query: `[batch, seq_len, d_model]`; with a cache, the new tokens.
            key: `[batch, kv_len, key_dim]`; query by default, which is self-attention.
            value: `[batch, kv_len, value_dim]`; key by default.
            mask: as in `headwise.attention`: `Causal()`, `Lengths(...)`, a boolean tensor in which True means
                may attend, or a float tensor; rank 3 is (batch, seq, kv).
            bias: float tensor added to the scores, its shape read as a mask's is.
            head_gates: `[num_heads]` or `[batch, num_heads]`, factors of the head outputs; 0 removes a head.
            cache: a `KVCache` or `RollingKVCache` of this layer, to which the new keys and values are
                appended; the new tokens then see what it holds, in causal order.
            lengths: with a cache, how many of the new tokens of each row are real; padding stands behind.
            observe: what to report of the heads; None for nothing. `Collect()` is the statistics that always
                are, and `Collect(top_k=8)`, for one, more.
            impl: as in `headwise.attention`.

        Returns:
            The mixed heads. With `observe`, an `Observation`: the mixed heads, the same to the bit, as
            `output`; `logsumexp` and `evidence` as in `headwise.observe`, which have no gradient and know
            neither dropout nor gates.

        Raises:
            ArgumentError: a shape or dtype does not fit; value is given without key, or lengths without
                cache; or key is given where a cache or rope needs query and key to be the same tokens. The
                cache is then as it was.

        Example:
            >>> import torch
            >>> from headwise import Causal, Collect, MultiHeadAttention
            >>> layer = MultiHeadAttention(d_model=12, num_heads=3)
            >>> seen = layer(torch.randn(1, 5, 12), mask=Causal(), observe=Collect())
            >>> seen.output.shape, seen.evidence.entropy.shape
            (torch.Size([1, 5, 12]), torch.Size([1, 3, 5]))

        """
        collect = checked_collect(observe)
        queries, keys, values = self._projected(query, key, value, cache=cache, lengths=lengths)
        terms: dict[str, Any] = {
            "bias": bias,
            "softcap": self.softcap,
            "sinks": self.sinks,
            "head_gates": head_gates,
            "dropout": self.dropout if self.training else 0.0,
            "impl": impl,
        }
        with unchanged_if_it_fails(cache):
            seen = seen_keys(keys, values, mask=mask, window=self.window, cache=cache, lengths=lengths)
            tensors, terms["mask"] = (queries, seen.key, seen.value), seen.mask
            if collect is None:
                return self._mixed(attention(*tensors, **terms))
            watched = observed_attention(*tensors, collect=collect, first_key=seen.first_key, **terms)
            return watched._replace(output=self._mixed(watched.output))

    def extra_repr(self) -> str:
        """Return the sizes, for `print`."""
        optional = {"rope": self.rope, "window": self.window, "softcap": self.softcap}
        shown = {"d_model": self.d_model, **asdict(self.layout), "dropout": self.dropout, **optional}
        return ", ".join(f"{name}={each}" for name, each in shown.items() if each is not None)

    def _mixed(self, heads: Tensor) -> Tensor:
        output: Tensor = self.out_proj(joined(heads))
        return output

    def _projected(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        *,
        cache: Cache | None,
        lengths: Sequence[int] | Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the heads of queries, keys and values, normed and at their positions."""
        check_combination(key, value, cache=cache, lengths=lengths, rope=self.rope, window=self.window)
        key = query if key is None else key
        value = key if value is None else value
        check_inputs(
            query,
            key,
            value,
            widths=(self.d_model, self.key_dim, self.value_dim),
            weights=[weight_of(name, getattr(self, name)) for name in ("q_proj", "k_proj", "v_proj")],
        )
        queries = normed(split(self.q_proj(query), self.layout.num_heads), self.q_norm)
        keys = normed(split(self.k_proj(key), self.layout.num_kv_heads), self.k_norm)
        values = split(self.v_proj(value), self.layout.num_kv_heads)
        if self.rope is not None:
            start = 0 if cache is None else cache.lengths or 0
            queries, keys = self.rope.rotate(queries, keys, first=start)
        return queries, keys, values
