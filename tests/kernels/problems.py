"""Attention problems large enough for several threads, and their answers from one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headwise import ops
from headwise.masks import Causal, Window

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class Threaded:
    """One of several problems: many rows or few, masks and element types taking turns."""

    def __init__(self, number: int) -> None:
        generator = torch.Generator().manual_seed(number)
        seq_len, kv_len = ((131 + number, 131 + number), (1, 2053), (3, 1031 + number))[number % 3]
        shapes = ((2, 6, seq_len, 64), (2, 3, kv_len, 64), (2, 3, kv_len, 64))
        self._tensors = [
            torch.randn(shape, generator=generator).to(DTYPES[number // 3 % 3]) for shape in shapes
        ]
        self._mask: Any = (None, Causal(), Causal() & Window.of(97 + number))[number % 3]

    def answer(self) -> Tensor:
        return ops.attention(*self._tensors, mask=self._mask, impl="cpu")

    @cached_property
    def alone(self) -> Tensor:
        """Return the answer of one thread."""
        with threads(1):
            return self.answer()

    def is_right(self) -> bool:
        """Return whether the answer is that of one thread, bit for bit.

        NumPy compares: torch would do so in threads of OpenMP, which a forked child does not have.
        """
        kind = torch.int32 if self.alone.dtype == torch.float32 else torch.int16
        return np.array_equal(*(each.view(kind).numpy() for each in (self.answer(), self.alone)))


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch, and so the kernel, use this many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def workers() -> list[threading.Thread]:
    """Return the kernel's worker threads."""
    return [thread for thread in threading.enumerate() if thread.name == "headwise worker"]
