"""Rotary positions: queries and keys turn with their place in the text, so scores depend on distance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from numbers import Real
from typing import Literal

import torch
from torch import Tensor

from headwise.counts import checked_size
from headwise.errors import ArgumentError
from headwise.masks.shapes import check_choice, checked_counts

Pairing = Literal["half_split", "interleaved"]


@dataclass(frozen=True)
class Rope:
    """Rotary positions: pair i of a head, at position p, turns by `p * base ** (-2 i / rotary_dim)` radians.

    Values never turn. Angles, sines and cosines are float64 before they are rounded to the dtype of
    computation (float32, float64 for float64), so that far positions stay exact; the result is rounded once.

    Args:
        base: the slowest pair turns about `base` times slower than the fastest; `rope_theta` in transformers.
        pairing: which two elements turn together: `"half_split"` is i and `i + rotary_dim / 2` (GPT-NeoX,
            Llama as transformers has it), `"interleaved"` is 2i and 2i + 1 (GPT-J, Llama as published).
        rotary_dim: how many elements of a head turn, the first ones; head_dim by default.

    Raises:
        ArgumentError: base is not a finite number above 0, pairing is unknown, or rotary_dim is odd.

    Example:
        >>> import torch
        >>> query, key = torch.randn(2, 1, 4, 5, 64).unbind()
        >>> one, other = (Rope().rotate(query, key, first=first) for first in (0, 1000))
        >>> torch.allclose(one[0] @ one[1].mT, other[0] @ other[1].mT, atol=1e-4)  # distances are the same
        True

    Source: Su et al. 2021, "RoFormer", equation 34.

    """

    base: float = 10_000.0
    pairing: Pairing = "half_split"
    rotary_dim: int | None = None

    def __post_init__(self) -> None:
        base = self.base
        if isinstance(base, bool) or not isinstance(base, Real) or not 0 < base < inf:
            raise ArgumentError(f"base={base!r} must be a finite number above 0, such as 10000.0")
        check_choice("pairing", self.pairing, Pairing)
        if self.rotary_dim is not None and checked_size("rotary_dim", self.rotary_dim) % 2:
            raise ArgumentError(
                f"rotary_dim={self.rotary_dim} is odd; elements turn in pairs: pass an even one"
            )

    def rotary_dim_of(self, head_dim: int) -> int:
        """Return how many elements turn of a head of `head_dim`.

        Raises:
            ArgumentError: a head has fewer elements, or an odd number of them and all are to turn.

        """
        rotary_dim = head_dim if self.rotary_dim is None else self.rotary_dim
        if rotary_dim > head_dim or rotary_dim % 2:
            raise ArgumentError(
                f"rotary positions turn {rotary_dim} elements of a head of head_dim={head_dim}; it must be "
                f"even and at most head_dim: pass rotary_dim={head_dim // 2 * 2} or less, or another head_dim"
            )
        return rotary_dim

    def rotate(self, query: Tensor, key: Tensor, *, first: Sequence[int] | int = 0) -> tuple[Tensor, Tensor]:
        """Return query and key turned to their positions.

        Args:
            query: `[batch, num_heads, seq_len, head_dim]`.
            key: `[batch, num_kv_heads, seq_len, head_dim]`, of the same tokens.
            first: the position of the first token, the same for all batch elements or one for each; behind a
                cache, `cache.lengths` before the append.

        Raises:
            ArgumentError: the shapes differ in more than the heads, `first` does not fit, or head_dim is odd.

        """
        _check_shapes(query, key)
        batch, _, seq_len, head_dim = query.shape
        starts = checked_counts("first", [first] if isinstance(first, int) else first)
        if len(starts) not in (1, batch):
            raise ArgumentError(
                f"first has {len(starts)} entries, but batch is {batch}; give one position for each batch "
                "element, or one integer for all"
            )
        rotary_dim = self.rotary_dim_of(head_dim)
        device, dtype = query.device, torch.float64
        starting = torch.tensor(starts, dtype=dtype, device=device)
        places = torch.arange(seq_len, dtype=dtype, device=device)
        pairs = torch.arange(0, rotary_dim, 2, dtype=dtype, device=device)
        # [batch or 1, 1, seq_len, 1] times [rotary_dim / 2]
        positions = starting[:, None, None, None] + places[:, None]
        angles = positions * float(self.base) ** (-pairs / rotary_dim)
        cos, sin = angles.cos(), angles.sin()
        return self._turned(query, cos, sin), self._turned(key, cos, sin)

    def _turned(self, given: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        compute_dtype = torch.float64 if given.dtype == torch.float64 else torch.float32
        cos, sin = cos.to(compute_dtype), sin.to(compute_dtype)
        rotary_dim = 2 * cos.shape[-1]
        turning = given[..., :rotary_dim].to(compute_dtype)
        if self.pairing == "half_split":
            one, other = turning.chunk(2, dim=-1)
            turned = torch.cat((one * cos - other * sin, other * cos + one * sin), dim=-1)
        else:
            one, other = turning[..., ::2], turning[..., 1::2]
            turned = torch.stack((one * cos - other * sin, other * cos + one * sin), dim=-1).flatten(-2)
        turned = turned.to(given.dtype)
        return (
            torch.cat((turned, given[..., rotary_dim:]), dim=-1) if rotary_dim < given.shape[-1] else turned
        )


def _check_shapes(query: Tensor, key: Tensor) -> None:
    for name, given in (("query", query), ("key", key)):
        if given.dim() != 4:
            raise ArgumentError(
                f"{name} has rank {given.dim()}, shape {tuple(given.shape)}; it must have rank 4, "
                "[batch, heads, seq_len, head_dim]"
            )
    if query.shape[0] != key.shape[0] or query.shape[2:] != key.shape[2:]:
        raise ArgumentError(
            f"query has shape {tuple(query.shape)} and key {tuple(key.shape)}; they are of the same tokens, "
            "so only the number of heads may differ"
        )
