"""Arrays as they stand in the page: planes of bytes, gzip, base64; and weights as 8-bit square roots."""

from __future__ import annotations

import base64
import gzip
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.verbs.view.result import Float32

COMPRESSION_LEVEL = 6
"""Level 9 takes three times as long on a long text and saves 1 %."""


class Packer:
    """Packs arrays for the page, each one once: its size is asked for before it is known to be carried."""

    def __init__(self) -> None:
        # By identity, and with the array, so that no other one can come to have its identity.
        self._packed: dict[int, tuple[NDArray[Any], str]] = {}

    def text(self, block: NDArray[Any]) -> str:
        """Return the block as it stands in the page."""
        if id(block) not in self._packed:
            self._packed[id(block)] = (block, _packed(block))
        return self._packed[id(block)][1]

    def size(self, *blocks: NDArray[Any]) -> int:
        """Return how many bytes of the page the blocks take."""
        return sum(len(self.text(block)) for block in blocks)


def _packed(block: NDArray[Any]) -> str:
    little = np.ascontiguousarray(block.astype(block.dtype.newbyteorder("<"), copy=False))
    # Bytes of one rank together: gzip packs, say, the high bytes of keys to almost nothing.
    planes = little.reshape(-1).view(np.uint8).reshape(-1, block.dtype.itemsize).T
    # mtime=0: the same data give the same file.
    return base64.b64encode(gzip.compress(planes.tobytes(), COMPRESSION_LEVEL, mtime=0)).decode("ascii")


def as_ink(weights: Float32) -> NDArray[np.uint8]:
    """Return weights in [0, 1] as 8-bit square roots, which are fine where weights are small."""
    return np.round(255 * np.sqrt(np.clip(weights, 0, 1))).astype(np.uint8)
