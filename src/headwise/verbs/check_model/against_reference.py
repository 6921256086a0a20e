"""One attention call held against the definition in float64, by the one tolerance rule of the project."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise import masks, reference
from headwise.models.attachment.layer_call import LayerCall

ROWS = 48
"""As many query rows of a call are held to the definition, evenly spread, the first and last included."""

CAPS = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""No plain implementation, however bad, excuses more than this share of the largest value.

A layer in float64 is held as one in float32, in which transformers takes its softmax, and some families
(GPT-J) their scores, whatever the dtype.
"""

Errors = NDArray[np.float64]


@dataclass(frozen=True)
class Held:
    """How far a call is from the definition.

    - errors `[num_heads]`: largest difference of any entry of the head's output; inf where it is not finite
      and the definition is
    - allowed: twice the error of a plain implementation in the same dtype, and 2 eps of the largest value
    - largest: largest value by the definition; rows: how many query rows see a key and were compared
    - is_finite: whether query, key and value were, so that the layer can be judged at all
    """

    errors: tuple[float, ...]
    allowed: float
    largest: float
    rows: int
    is_finite: bool

    @property
    def error(self) -> float:
        """The error of the worst head."""
        return max(self.errors, default=0.0)

    @property
    def is_right(self) -> bool:
        """Whether it is within what is allowed."""
        return self.error <= self.allowed

    @property
    def wrong_heads(self) -> tuple[int, ...]:
        """The heads beyond what is allowed."""
        return tuple(head for head, error in enumerate(self.errors) if error > self.allowed)


def hold(call: LayerCall, output: Tensor) -> Held:
    """Compare a layer's own output, `[batch, num_heads, seq_len, value_head_dim]`, with the definition.

    Rows that see no key are left out: frameworks differ about them on purpose.
    """
    some = _some_rows(call)
    result = reference.attention(
        _numbers(some.query),
        _numbers(some.key),
        _numbers(some.value),
        mask=None if some.mask is None else np.asarray(some.mask),
        bias=None if some.bias is None else _numbers(some.bias),
        scale=some.scale,
        softcap=some.softcap,
        sinks=None if some.sinks is None else _numbers(some.sinks.flatten()),
    )
    rows = _spread(call.query.shape[2])
    is_finite = all(bool(each.isfinite().all()) for each in (call.query, call.key, call.value))
    seen = np.isfinite(result.logsumexp)  # [batch, num_heads, rows]
    exact = np.where(seen[..., None], result.output, 0.0)
    own = _difference(_numbers(output[:, :, rows]), exact, seen)
    dtype = call.query.dtype if call.query.dtype in CAPS else torch.float32
    plain = _difference(_numbers(_plainly(some, dtype)), exact, seen)
    eps = torch.finfo(dtype).eps
    finite = exact[np.isfinite(exact)]
    largest = float(np.abs(finite).max()) if finite.size else 0.0
    allowed = min(2 * float(plain.max()) + 2 * eps * largest, CAPS[dtype] * max(largest, eps))
    return Held(tuple(own.tolist()), allowed, largest, int(seen[:, 0].sum()), is_finite)


def _difference(found: Errors, exact: Errors, seen: NDArray[np.bool_]) -> Errors:
    """Return the largest difference of each head, `[num_heads]`."""
    compared = np.isfinite(exact) & seen[..., None]
    with np.errstate(invalid="ignore"):
        errors = np.where(compared, np.abs(found - exact), 0.0)
    errors[np.isnan(errors)] = np.inf
    return np.asarray(errors.max(axis=(0, 2, 3), initial=0.0))


def _spread(seq_len: int) -> Tensor:
    """Return at most `ROWS` row numbers, the first and the last among them."""
    if seq_len <= ROWS:
        return torch.arange(seq_len)
    return torch.linspace(0, seq_len - 1, ROWS).round().long()


def _some_rows(call: LayerCall) -> LayerCall:
    """Return the call with some of its rows, its mask a boolean tensor or None."""
    rows = _spread(call.query.shape[2])
    mask = call.mask
    if isinstance(mask, masks.Mask):
        batch, num_heads, seq_len, _ = call.query.shape
        kv_len = call.key.shape[2]
        every = masks.resolve(mask, masks.Sizes(batch, num_heads, seq_len, kv_len)).intervals
        some = masks.Intervals(every.start[:, rows.numpy()], every.stop[:, rows.numpy()])
        mask = torch.from_numpy(some.visible(kv_len))[:, None]
    elif mask is not None:
        mask = _rows_of(mask, rows).cpu()
    bias = None if call.bias is None else _rows_of(call.bias, rows)
    return call._replace(query=call.query[:, :, rows.to(call.query.device)], mask=mask, bias=bias)


def _rows_of(tensor: Tensor, rows: Tensor) -> Tensor:
    return tensor if tensor.shape[2] == 1 else tensor[:, :, rows.to(tensor.device)]


def _plainly(call: LayerCall, dtype: torch.dtype) -> Tensor:
    """Return attention as it is written down without thinking of digits."""
    group_size = call.query.shape[1] // call.key.shape[1]
    query = call.query.to(dtype)
    key, value = (each.to(dtype).repeat_interleave(group_size, dim=1) for each in (call.key, call.value))
    scale = call.query.shape[3] ** -0.5 if call.scale is None else call.scale
    scores = query @ key.mT * scale
    if call.softcap is not None:
        scores = call.softcap * torch.tanh(scores / call.softcap)
    if call.bias is not None:
        scores = scores + call.bias.to(dtype)
    if isinstance(call.mask, Tensor):
        scores = scores.masked_fill(~call.mask.to(scores.device), torch.finfo(scores.dtype).min)
    if call.sinks is not None:
        sinks = call.sinks.to(scores.dtype).reshape(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, sinks], dim=-1)
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(value.dtype)
    return weights[..., : key.shape[2]] @ value


def _numbers(tensor: Tensor) -> Errors:
    return tensor.detach().to("cpu", torch.float64).numpy()
