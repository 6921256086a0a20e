"""Which linear layer made a call's query, key or value, and where in its output each head lies.

By its numbers and not by its name: a head's rows have, token by token, the same length as the slice of the
linear layer's output that they were made of. Rotary positions turn rows and keep their lengths, and a scale
that is folded in changes all by one factor. Where each head is normed first, the norm is looked through.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

LEAST_TOKENS = 5
"""Fewer rows than these could have the lengths of other rows by chance."""
MOST_TOKENS = 64
TOLERANCES = {torch.float64: 1e-5, torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 3e-2}
"""How far two profiles of squared lengths, each of length 1, may be apart."""
ALIKE = 1e-6
"""Two slices whose profiles are so close are copies of each other; they are taken in the order of heads."""
TELLING = 0.01
"""Rows whose lengths differ by less than this from one length, as a norm makes them, are like any other's."""
TINY = 1e-300
"""In place of a length of 0, by which nothing is divided."""

Numbers = NDArray[Any]


class Way(NamedTuple):
    """How a source is looked for.

    - first_row: the first row must be there number by number; where all heads are normed their lengths tell
      little
    - repeated: a KV head was written out for several query heads before the call
    """

    first_row: bool
    repeated: bool


WAYS = (
    Way(first_row=True, repeated=False),
    Way(first_row=False, repeated=False),
    Way(first_row=True, repeated=True),
)


@dataclass(frozen=True, eq=False)
class Made:
    """What a linear layer or a norm read and wrote since the attention call before; rows last but one."""

    name: str
    module: nn.Module
    read: Tensor
    written: Tensor

    @property
    def is_linear(self) -> bool:
        """Whether it is a linear layer, and no norm."""
        return isinstance(self.module, nn.Linear | Conv1D)


@dataclass(frozen=True, eq=False)
class Source:
    """A linear layer, and at which of its output columns each head begins; `width` columns are a head's."""

    name: str
    module: nn.Module
    begins: tuple[int, ...]
    width: int


def find_source(heads: Tensor, made: Sequence[Made], unit: int) -> Source | None:
    """Return what made `heads`, `[batch, heads, rows, width]`; None where no linear layer is found.

    Args:
        heads: query, key or value as the attention call gets them.
        made: what ran since the call before.
        unit: heads begin at multiples of it.

    """
    # [batch, heads, rows, width] -> [batch * rows, heads, width]
    target = heads.transpose(1, 2).flatten(0, 1)
    found = (_source_of_rows(target, made, unit, way) for way in WAYS)
    return next((source for source in found if source is not None), None)


def _source_of_rows(target: Tensor, made: Sequence[Made], unit: int, way: Way) -> Source | None:
    width = target.shape[2]
    for one in reversed(made):
        rows = _rows(one.written, target)
        begins = None if rows is None else _begins(target, rows, unit, way)
        if begins is None:
            continue
        if one.is_linear:
            return Source(one.name, one.module, begins, width)
        before = _rows(one.read, target)
        if before is not None:
            slices = torch.stack([before[:, begin : begin + width] for begin in begins], dim=1)
            found = _source_of_rows(slices, [other for other in made if other.is_linear], unit, way)
            if found is not None:
                return found
    return None


def _rows(tensor: Tensor, target: Tensor) -> Tensor | None:
    """Return a module's input or output as `[rows, columns]`, heads side by side; None if it is no such."""
    count, heads, width = target.shape
    if tensor.dim() == 4 and tensor.shape[3] == width:
        # A norm of heads reads [batch, rows, heads, width], or with the two in the middle exchanged.
        turned = tensor.transpose(1, 2) if tensor.shape[1] == heads and tensor.shape[2] != heads else tensor
        tensor = turned.flatten(2)
    if tensor.numel() == 0 or tensor.numel() != count * tensor.shape[-1] or tensor.shape[-1] < width:
        return None
    return tensor.reshape(count, -1)


def _begins(target: Tensor, rows: Tensor, unit: int, way: Way) -> tuple[int, ...] | None:
    """Return at which column each head begins, or None where a head is not found."""
    count, _, width = target.shape
    if count < LEAST_TOKENS:
        return None
    tolerance = TOLERANCES.get(target.dtype, TOLERANCES[torch.float32])
    some = torch.linspace(0, count - 1, min(count, MOST_TOKENS)).round().long()
    step = math.gcd(unit, rows.shape[1])
    heads, columns = _numbers(target[some]), _numbers(rows[some])
    windows = _window_lengths(columns, width, step)  # [places, rows]
    lengths = np.square(heads).sum(-1).T  # [heads, rows]
    with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinity are like nothing
        apart = _apart(lengths, windows)  # [heads, places]
        near = (apart <= tolerance) & _of_one_factor(lengths, windows, apart, tolerance)
        if not way.first_row and _flattest(lengths) < max(TELLING, 2 * tolerance):
            return None
        if way.first_row:
            near &= _same_first_row(heads[0], columns[0], near, step, tolerance)
    begins = _in_order(apart, near, step, 0 if way.repeated else width)
    return None if begins is None or (way.repeated and not _is_repeated(begins)) else begins


def _numbers(tensor: Tensor) -> Numbers:
    return tensor.detach().to("cpu", torch.float64).numpy()


def _window_lengths(rows: Numbers, width: int, step: int) -> Numbers:
    """Return the squared lengths of every slice of `width` columns that begins at a multiple of `step`."""
    blocks = np.square(rows).reshape(len(rows), -1, step).sum(-1)  # [rows, columns / step]
    windows = np.lib.stride_tricks.sliding_window_view(blocks, width // step, axis=1)
    lengths: Numbers = windows.sum(-1).T
    return lengths


def _apart(lengths: Numbers, windows: Numbers) -> Numbers:
    """Return how far the profiles of heads and places are apart, 0 to sqrt(2), `[heads, places]`.

    Two that are 0 throughout are the same.
    """
    sizes, others = (np.linalg.norm(each, axis=-1) for each in (lengths, windows))
    cosines = (lengths / np.maximum(sizes, TINY)[:, None]) @ (windows / np.maximum(others, TINY)[:, None]).T
    apart = np.sqrt(np.maximum(2 - 2 * cosines, 0.0))
    apart[sizes == 0] = np.inf
    apart[:, others == 0] = np.inf
    apart[(sizes == 0)[:, None] & (others == 0)] = 0.0
    return np.where(np.isnan(apart), np.inf, apart)


def _of_one_factor(lengths: Numbers, windows: Numbers, apart: Numbers, tolerance: float) -> Numbers:
    """Return at which places a head has the factor that most heads have, `[heads, places]`.

    A copy that is larger by a factor has the same profile, and this tells the two apart.
    """
    sizes, others = (np.linalg.norm(each, axis=-1) for each in (lengths, windows))
    factors = sizes[:, None] / np.maximum(others, TINY)
    best = factors[np.arange(len(factors)), apart.argmin(1)]
    known = best[(best > 0) & np.isfinite(best)]
    usual = float(np.median(known)) if known.size else 1.0
    same: Numbers = (np.abs(factors / usual - 1) <= 4 * tolerance) | (factors == 0)
    return same


def _flattest(lengths: Numbers) -> float:
    """Return how far the profile nearest to one length throughout is from that, heads of zeros aside."""
    sizes = np.linalg.norm(lengths, axis=-1)
    profiles = lengths[sizes > 0] / sizes[sizes > 0, None]
    along = np.minimum(profiles.sum(-1) / math.sqrt(lengths.shape[1]), 1.0)
    return float(np.sqrt(2 - 2 * along).min(initial=math.inf))


def _same_first_row(heads: Numbers, columns: Numbers, near: Numbers, step: int, tolerance: float) -> Numbers:
    """Return which of the places that are near have the numbers of the head's first row, in any order.

    The first position is not turned by rotary embeddings, and some families reorder what they turn.
    """
    same = np.zeros_like(near)
    for head, place in np.argwhere(near):
        own, other = np.sort(heads[head]), np.sort(columns[place * step : place * step + len(heads[head])])
        size, length = np.linalg.norm(own), np.linalg.norm(other)
        same[head, place] = np.linalg.norm(own * length - other * size) <= 4 * tolerance * size * length
    return same


def _is_repeated(begins: Sequence[int]) -> bool:
    """Return whether each place stands equally often, one after the other."""
    copies = len(begins) // len(set(begins))
    return list(begins) == [begin for begin in sorted(set(begins)) for _ in range(copies)]


def _in_order(apart: Numbers, near: Numbers, step: int, stride: int) -> tuple[int, ...] | None:
    """Return the column of each head, every one `stride` or more behind the one before it.

    Of several places that are alike, where heads are copies of each other, the first is taken.
    """
    found: list[int] = []
    first = 0
    for distances, allowed in zip(apart, near, strict=True):
        places = np.flatnonzero(allowed)
        places = places[places * step >= first]
        if not places.size:
            return None
        alike = distances[places] <= max(4 * distances[places].min(), ALIKE)
        found.append(int(places[alike][0]) * step)
        first = found[-1] + stride
    return tuple(found)
