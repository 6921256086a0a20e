"""Which keys each row sees and what is added to their scores, as tensors on the device of the call.

The structured part of a mask stays two integers a row; the boolean and float tensors stay as they were given,
unexpanded. What a block of rows needs is built for that block alone, so memory does not grow with
seq_len x kv_len beyond what the caller passed in.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise import masks
from headwise.errors import ArgumentError


class Bias(NamedTuple):
    """What is added to the scores of some rows: `centred + shift`, of which the softmax needs only `centred`.

    - centred `[batch or 1, num_heads or 1, rows, kv_len]`: the largest visible entry of each row is 0
    - shift `[batch or 1, num_heads or 1, rows]`: what was subtracted
    """

    centred: Tensor
    shift: Tensor


class IntervalMemory(NamedTuple):
    """Where the intervals lie: int64, contiguous, `step` numbers from one batch element to the next."""

    start: int
    stop: int
    step: int
    arrays: tuple[NDArray[np.int64], ...]  # whose memory it is


@dataclass(frozen=True)
class Visibility:
    """A resolved mask and bias.

    - structured: the masks that are one interval of keys per row
    - boolean: tensors of rank 4 (batch, head, seq, kv), sizes of 1 not expanded, True means may attend
    - additive: float tensors of the same form; -inf hides, anything finite is added
    """

    sizes: masks.Sizes
    device: torch.device
    structured: tuple[masks.StructuredMask, ...]
    boolean: tuple[Tensor, ...]
    additive: tuple[Tensor, ...]

    @cached_property
    def intervals(self) -> masks.Intervals:
        """The keys that the structured masks let each row see, NumPy, `[batch or 1, seq_len]`."""
        return masks.resolve(masks.Intersection(self.structured), self.sizes).intervals

    def check_fit(self) -> None:
        """Refuse structured masks that do not fit the sizes."""
        sizes = self.sizes
        if all(type(size) is int for size in (sizes.batch, sizes.seq_len, sizes.kv_len)):
            self.intervals  # noqa: B018 - finding them is the check

    @cached_property
    def interval_memory(self) -> IntervalMemory:
        """The intervals as the kernel reads them."""
        start, stop = (np.ascontiguousarray(edge) for edge in (self.intervals.start, self.intervals.stop))
        step = 0 if len(start) == 1 else self.sizes.seq_len
        return IntervalMemory(start.ctypes.data, stop.ctypes.data, step, (start, stop))

    @property
    def hides_nothing(self) -> bool:
        """Whether every row surely sees every key."""
        full = (self.intervals.start == 0) & (self.intervals.stop == self.sizes.kv_len)
        return not self.boolean and not self.additive and bool(full.all())

    @property
    def is_square_causal(self) -> bool:
        """Whether the mask is causal order on a square and nothing else, where all alignments agree."""
        seq_len = self.sizes.seq_len
        own = np.arange(seq_len)
        causal = (self.intervals.start == 0) & (self.intervals.stop == own + 1)
        return not self.boolean and not self.additive and seq_len == self.sizes.kv_len and bool(causal.all())

    def hidden(self, rows: slice) -> Tensor | None:
        """Return what `rows` may not see, boolean `[batch or 1, num_heads or 1, rows, kv_len]`, or None.

        None means that every row sees every key.
        """
        if self.hides_nothing:
            return None
        start, stop = (
            torch.from_numpy(np.ascontiguousarray(edge[:, rows])).to(self.device)[:, None, :, None]
            for edge in (self.intervals.start, self.intervals.stop)
        )
        keys = torch.arange(self.sizes.kv_len, device=self.device)
        hidden = (keys < start) | (keys >= stop)
        for tensor in self.boolean:
            hidden = hidden | ~_rows_of(tensor, rows)
        for tensor in self.additive:
            hidden = hidden | (_rows_of(tensor.detach(), rows) == -torch.inf)
        return hidden

    def bias(self, rows: slice, hidden: Tensor | None, dtype: torch.dtype) -> Bias | None:
        """Return what is added to the scores of `rows`, in `dtype`, or None if nothing is.

        A softmax does not change when a number is added to its whole row. So each row's largest visible bias
        is taken off before it meets the scores: however large the bias is, the scores keep their digits.
        """
        return self.sum_of_biases(rows, hidden, dtype) if self.additive else None

    def sum_of_biases(self, rows: slice, hidden: Tensor | None, dtype: torch.dtype) -> Bias:
        """Return `bias` where something surely is added."""
        total = _sum([_rows_of(tensor, rows) for tensor in self.additive], dtype)
        seen = total.detach() if hidden is None else total.detach().masked_fill(hidden, -torch.inf)
        shift = seen.amax(-1) if self.sizes.kv_len else seen.new_zeros(seen.shape[:-1])
        shift = shift.masked_fill(shift == torch.inf, 0.0)  # infinity minus itself would be NaN
        return Bias((total - shift[..., None]).to(dtype), shift.to(dtype))


def resolve(mask: Any, bias: Any, sizes: masks.Sizes, device: torch.device) -> Visibility:
    """Return what `mask` and `bias` mean on a problem of these sizes.

    While torch traces, the sizes may be symbols, and it is for the operator to say whether a structured mask
    fits them.

    Raises:
        ArgumentError: a shape does not fit, a bias is boolean, or a tensor lies on another device.

    """
    parts = () if mask is None else masks.as_mask(mask).parts
    dense = [("mask", part) for part in parts if isinstance(part, masks.Dense)]
    if bias is not None:
        dense.append(("bias", as_bias(bias)))
    boolean: list[Tensor] = []
    additive: list[Tensor] = []
    for name, part in dense:
        tensor = _to_tensor(name, part.tensor, device)
        tensor = tensor.reshape(masks.broadcast_shape(name, tuple(tensor.shape), part.axes, sizes))
        (boolean if part.is_boolean else additive).append(tensor)
    structured = tuple(part for part in parts if isinstance(part, masks.StructuredMask))
    found = Visibility(sizes, device, structured, tuple(boolean), tuple(additive))
    if not torch.compiler.is_compiling():
        found.check_fit()
    return found


def as_bias(bias: Any) -> masks.Dense:
    """Return `bias`, a float tensor or a `Dense` around one, as a `Dense`."""
    dense = masks.as_mask(bias)
    if not isinstance(dense, masks.Dense) or dense.is_boolean:
        raise ArgumentError(
            f"bias is a {'boolean tensor' if isinstance(dense, masks.Dense) else type(bias).__name__}; "
            "it must be a float tensor that is added to the scores; pass what hides keys as mask="
        )
    return dense


def _to_tensor(name: str, given: Any, device: torch.device) -> Tensor:
    if not isinstance(given, Tensor):
        return torch.from_numpy(np.array(given)).to(device)
    if given.device != device:
        raise ArgumentError(
            f"{name} is on {given.device}, query on {device}; they must be on one device: "
            f"{name}.to({str(device)!r})"
        )
    return given


def _rows_of(tensor: Tensor, rows: slice) -> Tensor:
    return tensor if tensor.shape[2] == 1 else tensor[:, :, rows]


def _sum(parts: list[Tensor], dtype: torch.dtype) -> Tensor:
    if len(parts) == 1:
        return parts[0].to(torch.promote_types(parts[0].dtype, dtype))
    # Two biases of finfo.min would add up to -inf, which hides; in float64, and held above -inf, they do not.
    total = sum((part.double() for part in parts[1:]), parts[0].double())
    return total.clamp_min(torch.finfo(torch.float64).min)
