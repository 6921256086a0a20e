"""The backward pass as one would first write it in torch: all weights at once, all in one dtype.

In float64 it is what the kernel's gradients are held to, in the dtype of the call the baseline of the rule,
and with one fault each the mutants that must be caught.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from headwise import masks, reference
from headwise.ops.results import Gradients

from ..attention_cases import Case


class Upstream(NamedTuple):
    """The gradients of what a call returned: of its output, and of its logsumexp or None."""

    output: Tensor
    logsumexp: Tensor | None = None


class Formula:
    """The gradients of one case by their formulas; what is hidden is left out, not multiplied by 0.

    factors: what dropout multiplied the weights by, `[batch, num_heads, seq_len, kv_len]`.
    """

    def __init__(
        self, case: Case, upstream: Upstream, dtype: torch.dtype, factors: Tensor | None = None
    ) -> None:
        self.case, options = case, case.options
        self.query, key, value = (each.to(dtype) for each in (case.query, case.key, case.value))
        self.key, self.value = self.for_query_heads(key), self.for_query_heads(value)
        self.upstream = upstream.output.to(dtype)
        self.of_logsumexp = None if upstream.logsumexp is None else upstream.logsumexp.to(dtype)
        self.factors = None if factors is None else factors.to(dtype)
        sizes = masks.Sizes(*case.query.shape[:3], case.key.shape[2])
        given = [_for_numpy(options.get(name)) for name in ("mask", "bias")]
        visible, bias = reference.visible_and_bias(*given, sizes)
        self.visible = torch.from_numpy(visible).expand(*case.query.shape[:3], case.key.shape[2])
        # However large a bias is, the softmax hangs on its differences alone.
        wide = torch.from_numpy(bias).expand(self.visible.shape).masked_fill(~self.visible, -torch.inf)
        shift = wide.amax(-1, keepdim=True).nan_to_num(neginf=0.0, nan=0.0) if wide.shape[3] else 0.0
        self.bias = (wide - shift).masked_fill(~self.visible, 0.0).to(dtype)
        scale = options.get("scale")
        self.scale: float = case.query.shape[3] ** -0.5 if scale is None else scale
        self.softcap: float | None = options.get("softcap")
        sinks = options.get("sinks")
        # [num_heads] -> [batch, num_heads, seq_len, 1]
        self.sinks = None if sinks is None else (sinks.double()[:, None, None] - shift).to(dtype)

    @property
    def gradients(self) -> Gradients:
        """All gradients; that of the bias before it is summed to the shape of a bias."""
        scores = self.of_scores * self.slopes
        return Gradients(
            query=self.scale_of_query * self.over_keys(scores, self.key),
            key=self.scale_of_key * self.for_kv_heads(self.over_rows(scores, self.query)),
            value=self.for_kv_heads(self.over_rows(self.dropped, self.upstream)),
            bias=self.of_scores,
            sinks=self.of_sinks,
        )

    def for_query_heads(self, tensor: Tensor) -> Tensor:
        """Return the key or value of each query head."""
        return tensor.repeat_interleave(self.case.query.shape[1] // tensor.shape[1], 1)

    def for_kv_heads(self, tensor: Tensor) -> Tensor:
        """Return what `for_query_heads` asks for of a gradient."""
        batch, num_heads, length, width = tensor.shape
        num_kv_heads = self.case.key.shape[1]
        return tensor.reshape(batch, num_kv_heads, num_heads // num_kv_heads, length, width).sum(2)

    @property
    def scale_of_query(self) -> float:
        return self.scale

    @property
    def scale_of_key(self) -> float:
        return self.scale

    @cached_property
    def capped(self) -> tuple[Tensor, Tensor]:
        """Scores before the bias, and the derivative of their softcap."""
        scores = self.scale * (self.query @ self.key.mT)
        if self.softcap is None:
            return scores, torch.ones_like(scores)
        ratio = scores / self.softcap
        return self.softcap * torch.tanh(ratio), torch.cosh(ratio) ** -2

    @property
    def slopes(self) -> Tensor:
        return self.capped[1]

    @cached_property
    def softmax(self) -> tuple[Tensor, Tensor]:
        """The weights of the keys and those of the sinks; 0 where a row sees no key."""
        empty = ~self.visible.any(-1, keepdim=True)
        scores = (self.capped[0] + self.bias).masked_fill(~self.visible, -torch.inf).masked_fill(empty, 0.0)
        if self.sinks is not None:
            sinks = self.sinks.expand(*scores.shape[:3], 1)
            found = torch.cat([scores, sinks], -1).softmax(-1).masked_fill(empty, 0.0)
            return found[..., :-1], found[..., -1]
        weights = scores.softmax(-1).masked_fill(empty | ~self.visible, 0.0)
        return weights, weights.new_zeros(weights.shape[:3])

    @property
    def dropped(self) -> Tensor:
        """What the values were multiplied by."""
        weights = self.softmax[0]
        return weights if self.factors is None else weights * self.factors

    @cached_property
    def of_weights(self) -> Tensor:
        """The gradients of the weights before dropout."""
        found = self.upstream @ self.value.mT
        return self.shown(found if self.factors is None else found * self.factors)

    @cached_property
    def row_sums(self) -> Tensor:
        """What the weights' gradients come to in each row: Dao et al. 2022, equation 4."""
        return (self.upstream * self.over_keys(self.dropped, self.value)).sum(-1)

    @property
    def lowered_by(self) -> Tensor:
        """What each row takes off the gradients of its weights."""
        return self.row_sums if self.of_logsumexp is None else self.row_sums - self.of_logsumexp

    @cached_property
    def of_scores(self) -> Tensor:
        return self.shown(self.softmax[0] * (self.of_weights - self.lowered_by[..., None]))

    @property
    def of_sinks(self) -> Tensor:
        """What each batch element adds to the gradient of the sinks."""
        found = -self.softmax[1] * self.lowered_by
        return found.masked_fill(~self.visible.any(-1), 0.0).sum(-1)

    def shown(self, numbers: Tensor) -> Tensor:
        return numbers.masked_fill(~self.visible, 0.0)

    def over_keys(self, weights: Tensor, lines: Tensor) -> Tensor:
        """Return the lines of the keys, summed for each row."""
        return weighted(weights, lines, self.visible)

    def over_rows(self, weights: Tensor, lines: Tensor) -> Tensor:
        """Return the lines of the rows, summed for each key."""
        return weighted(weights.mT, lines, self.visible.mT)


class ByWeights(Formula):
    """The same with the sums of rows as autograd finds them, from the weights and their gradients."""

    @cached_property
    def row_sums(self) -> Tensor:
        return self.shown(self.softmax[0] * self.of_weights).sum(-1)


def weighted(weights: Tensor, lines: Tensor, visible: Tensor) -> Tensor:
    """Return `weights @ lines` over what is visible, whatever stands elsewhere."""
    if weights.isfinite().all() and lines.isfinite().all():
        return weights @ lines
    # [batch, num_heads, rows, keys, width]
    terms = weights[..., None] * lines[..., None, :, :]
    return terms.masked_fill(~visible[..., None], 0.0).sum(-2)


def _for_numpy(option: object) -> object:
    is_float = isinstance(option, Tensor) and option.is_floating_point()
    return option.detach().double().numpy() if is_float else option
