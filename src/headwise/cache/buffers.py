"""The memory behind the keys and values of a cache."""

from __future__ import annotations

import math
import mmap
import sys
from contextlib import suppress

import torch
from torch import Tensor

LARGE_BYTES = 4 * 1024 * 1024
"""From here on a buffer asks for large pages: it then holds at least one of 2 MiB, whatever its place."""


def unwritten(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Return an unwritten tensor of the dtype and device of `like`.

    A large one on the CPU lies in pages of 2 MiB where Linux grants them. Keys are read from first to last at
    every token, and what then limits is memory: in pages of 4 KiB the processor looks up a new one every few
    keys, and what it fetches ahead ends with each.
    """
    size = math.prod(shape) * like.element_size()
    if sys.platform == "linux" and size >= LARGE_BYTES and _is_plain(like):
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(OSError):  # of a Linux built without large pages
            memory.madvise(mmap.MADV_HUGEPAGE)
        return torch.frombuffer(memory, dtype=like.dtype).view(shape)
    return torch.empty(shape, dtype=like.dtype, device=like.device)


def _is_plain(tensor: Tensor) -> bool:
    """Return whether memory on this machine stands behind a tensor: not in a trace, nor for a subclass."""
    return type(tensor) is Tensor and tensor.device.type == "cpu" and not torch.compiler.is_compiling()
