"""The arguments of an attention call: checked once, here, and handed on as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headwise import masks
from headwise.errors import ArgumentError
from headwise.ops.fitting import Asked, compute_dtype, is_value, settle, settled, traits_of
from headwise.ops.visibility import Visibility


@dataclass(frozen=True)
class Call:
    """One attention call whose arguments are known to fit together.

    - query `[batch, num_heads, seq_len, head_dim]`, key `[batch, num_kv_heads, kv_len, head_dim]`,
      value `[batch, num_kv_heads, kv_len, value_head_dim]`
    - sinks `[num_heads]`, or `[batch, num_heads]` where `torch.vmap` maps them; head_gates
      `[batch or 1, num_heads]`; both in `compute_dtype`
    - seed: int64 `[1]`, which weights dropout drops; None until `ops.dropout.seeded` draws one
    """

    query: Tensor
    key: Tensor
    value: Tensor
    visibility: Visibility
    scale: float
    softcap: float | None
    sinks: Tensor | None
    head_gates: Tensor | None
    dropout: float
    seed: Tensor | None = None

    @property
    def sizes(self) -> masks.Sizes:
        """The sizes a mask has to fit."""
        return self.visibility.sizes

    @property
    def num_kv_heads(self) -> int:
        """The number of key and value heads."""
        return self.key.shape[1]

    @property
    def group_size(self) -> int:
        """The number of query heads that read one KV head."""
        return self.query.shape[1] // self.key.shape[1]

    @property
    def compute_dtype(self) -> torch.dtype:
        """The dtype of scores, softmax and weighted sum: float64 for float64, else float32."""
        return compute_dtype(self.query.dtype)

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors of the call, seed aside."""
        found = [self.query, self.key, self.value, *self.visibility.boolean, *self.visibility.additive]
        if self.sinks is not None:
            found.append(self.sinks)
        if self.head_gates is not None:
            found.append(self.head_gates)
        return found

    def gated(self, output: Tensor) -> Tensor:
        """Return `output`, `[batch, num_heads, rows, value_head_dim]`, times the gate of each head."""
        return output if self.head_gates is None else output * self.head_gates[..., None, None]


def check(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    head_gates: Tensor | None = None,
    dropout: float = 0.0,
) -> Call:
    """Return the checked call.

    Raises:
        ArgumentError: an argument has a type, shape, dtype, device or value that is not allowed.

    """
    traits = traits_of("query", query), traits_of("key", key), traits_of("value", value)
    if torch._C._is_any_autocast_enabled():
        query, key, value = _autocast(query), _autocast(key), _autocast(value)
        traits = traits_of("query", query), traits_of("key", key), traits_of("value", value)
    asked = Asked(mask, bias, scale, softcap, dropout)
    is_plain = type(query) is type(key) is type(value) is Tensor and not torch.compiler.is_compiling()
    terms = (settled if is_plain and is_value(asked) else settle)(*traits, asked)
    if sinks is not None:
        sinks = _per_head("sinks", sinks, query, [(query.shape[1],)])
    if head_gates is not None:
        batch, num_heads = query.shape[:2]
        head_gates = _per_head("head_gates", head_gates, query, [(num_heads,), (batch, num_heads)])
        head_gates = head_gates.reshape(-1, num_heads)
    return Call(
        query, key, value, terms.visibility, terms.scale, terms.softcap, sinks, head_gates, terms.dropout
    )


def _autocast(tensor: Tensor) -> Tensor:
    """Return a tensor as torch's own attention takes it under autocast: float64, which it leaves, aside."""
    device = tensor.device.type
    if not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return tensor
    if not tensor.is_floating_point() or tensor.dtype is torch.float64:
        return tensor
    return tensor.to(torch.get_autocast_dtype(device))


def _per_head(name: str, given: Any, query: Tensor, allowed: list[tuple[int, ...]]) -> Tensor:
    """Return `given`, a float tensor of one of the `allowed` shapes, in the dtype of computation."""
    expected = " or ".join(map(str, allowed))
    if not isinstance(given, Tensor) or not given.dtype.is_floating_point:
        kind = str(given.dtype) if isinstance(given, Tensor) else type(given).__name__
        raise ArgumentError(
            f"{name} is a {kind}; it must be a float tensor of shape {expected}, one number per query head"
        )
    if tuple(given.shape) not in allowed:
        raise ArgumentError(
            f"{name} has shape {tuple(given.shape)}; it must be {expected}, one number per query head"
        )
    if given.device != query.device:
        raise ArgumentError(
            f"{name} is on {given.device}, query on {query.device}; they must be on one device"
        )
    return given.to(compute_dtype(query.dtype))
