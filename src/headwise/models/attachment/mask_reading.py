"""What the mask tensors that transformers hands over say, in a form that lets the kernel skip hidden keys.

Almost every mask of a model is one run of visible keys per row: causal order, padding, windows, chunks,
packed texts, the empty end of a static cache. As two integers a row it costs the kernel nothing; as a tensor,
a look at every entry. All layers of a forward share one mask, so it is read once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise import masks

REMEMBERED = 4
"""How many masks of a forward are kept beside what they say: families mix two kinds, seldom more."""


@dataclass(frozen=True, eq=False)
class Runs(masks.MaskValue):
    """One run of visible keys per row, `start <= j < stop`; both `[batch or 1, seq_len or 1]`."""

    start: NDArray[np.int64]
    stop: NDArray[np.int64]

    def intervals(self, batch: int, seq_len: int, kv_len: int) -> masks.Intervals:
        """Return the runs, one for each row."""
        rows = (len(self.start), seq_len)
        return masks.Intervals(np.broadcast_to(self.start, rows), np.broadcast_to(self.stop, rows))

    def seen_keys(self, kv_len: int) -> NDArray[np.bool_]:
        """Return which keys any row sees, `[batch or 1, kv_len]`."""
        seen: NDArray[np.bool_] = np.any(masks.Intervals(self.start, self.stop).visible(kv_len), axis=1)
        return seen

    def first_seen_key(self) -> NDArray[np.int64]:
        """Return the first key that any row sees, `[batch or 1]`; 0 where none is seen."""
        start, stop = np.broadcast_arrays(self.start, self.stop)
        furthest = np.iinfo(np.int64).max
        first = np.where(start < stop, start, furthest).min(axis=1, initial=furthest)
        found: NDArray[np.int64] = np.where(first == furthest, 0, first)
        return found


class MaskReading(NamedTuple):
    """What a mask tensor `[batch or 1, num_heads or 1, seq_len or 1, kv_len]` says.

    - visible: the keys that each row sees; None for all
    - added: what is added to the scores, float and finite; None for nothing
    """

    visible: Runs | Tensor | None
    added: Tensor | None


def read(mask: Tensor, sizes: masks.Sizes) -> MaskReading:
    """Return what a boolean mask (True means may attend) or a float mask (added to the scores) says.

    In a float mask transformers hides with the lowest number of the dtype, or with -inf.

    Raises:
        ArgumentError: the mask does not fit the sizes.

    """
    masks.broadcast_shape("mask", tuple(mask.shape), "bhqk", sizes)
    # [batch, num_heads, seq_len, kv_len] -> what was only expanded is looked at once
    once = mask[tuple(slice(1) if stride == 0 else slice(None) for stride in mask.stride()[:3])]
    if once.dtype == torch.bool:
        return MaskReading(_as_runs(once, sizes.kv_len), None)
    visible = once > torch.finfo(once.dtype).min
    added = once.masked_fill(~visible, 0.0)
    return MaskReading(_as_runs(visible, sizes.kv_len), added if bool(added.any()) else None)


class _Remembered(NamedTuple):
    mask: Tensor  # kept, so that no other tensor can come to have its id
    version: int
    sizes: tuple[int, ...]
    reading: MaskReading


class MaskMemory:
    """What the masks of one forward say, each read once."""

    def __init__(self) -> None:
        self._found: dict[int, _Remembered] = {}

    def read(self, mask: Tensor, sizes: tuple[int, ...]) -> MaskReading:
        """Return `read(mask, masks.Sizes(*sizes))`; from memory where it is the same tensor, unchanged."""
        found = self._found.get(id(mask))
        if found is not None and found.version == mask._version and found.sizes == sizes:
            return found.reading
        reading = read(mask, masks.Sizes(*sizes))
        if not mask.is_inference():  # such a tensor would not say that it was changed
            self._found.pop(id(mask), None)
            if len(self._found) == REMEMBERED:
                del self._found[next(iter(self._found))]
            self._found[id(mask)] = _Remembered(mask, mask._version, sizes, reading)
        return reading

    def forget(self) -> None:
        """Let go of all masks."""
        self._found.clear()


def _as_runs(visible: Tensor, kv_len: int) -> Runs | Tensor | None:
    """Return a boolean tensor as one run per row where it is that, None where all is seen, else itself."""
    if not visible.numel() or visible.shape[1] != 1 or visible.shape[3] != kv_len:
        return visible
    if not _can_be_looked_at(visible):
        return visible
    seen = visible[:, 0].numpy()  # [batch or 1, seq_len or 1, kv_len]
    count = np.count_nonzero(seen, axis=-1)
    if (count == kv_len).all():
        return None
    start = seen.argmax(-1)
    reach = kv_len - seen[..., ::-1].argmax(-1) - start  # from the first seen key to the last
    if ((count != reach) & (count > 0)).any():
        return visible
    return Runs(start, start + count)


def _can_be_looked_at(tensor: Tensor) -> bool:
    """Return whether a tensor's numbers are there, and the kernel that gains from looking is as well."""
    return (
        type(tensor) is Tensor
        and tensor.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    )
