"""Tensors that grow by a few rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class Growing:
    """A tensor that grows along its third dimension: `[batch, heads, length, ...]`.

    There is always room to spare, twice as much whenever it runs out, so that each number is copied a fixed
    number of times, however many steps come.
    """

    def __init__(self, first: Tensor) -> None:
        self._length = 0
        with _plain_tensors():
            self._room = first.new_zeros((*first.shape[:2], 2 * first.shape[2], *first.shape[3:]))
        self.append(first)

    def append(self, more: Tensor) -> None:
        """Put `more` behind what is there."""
        start = self._length
        with _plain_tensors():
            self._reach(start + more.shape[2])
            self._room[:, :, start : self._length] = more

    def add(self, more: Tensor) -> None:
        """Add `more` to what is there, from the first place on; past the end there is 0."""
        with _plain_tensors():
            self._reach(more.shape[2])
            self._room[:, :, : more.shape[2]] += more

    def whole(self) -> Tensor:
        """Return all that is there; it changes with a later `add`, not with a later `append`."""
        return self._room[:, :, : self._length]

    def _reach(self, length: int) -> None:
        if length > self._room.shape[2]:
            room = self._room.new_zeros((*self._room.shape[:2], 2 * length, *self._room.shape[3:]))
            room[:, :, : self._length] = self.whole()
            self._room = room
        self._length = max(self._length, length)


@contextmanager
def _plain_tensors() -> Iterator[None]:
    """Make tensors that may be written to later, also where this forward runs in inference mode."""
    with torch.inference_mode(False), torch.no_grad():
        yield
