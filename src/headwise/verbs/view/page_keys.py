"""The largest keys of each row, as many as there is room for.

Of a row its `always` largest keys are carried, and of the others that were collected those that weigh enough.
The rows follow each other without gaps, and the number of entries of each row stands beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.verbs.view.page_blocks import Packer, as_ink
from headwise.verbs.view.result import LayerMaps

ALWAYS = (2, 1, 0)
"""How many keys of a row are carried however little they weigh: the first of these that there is room for."""
CODES = 256
CLOSER = 1.02
"""An estimate of the bytes of an entry that was too low is raised by a little more than it missed."""


@dataclass(frozen=True)
class KeyChoice:
    """Which keys of a row are carried: its `always` largest, and up to `at_most` of `from_code` or more."""

    always: int
    at_most: int
    from_code: int

    def as_header(self) -> dict[str, float]:
        """Return the choice as the page reads it: the weight in place of its code."""
        always = self.at_most if self.from_code <= 1 else self.always
        return {"always": always, "at_most": self.at_most, "from_weight": (self.from_code / 255) ** 2}


def key_blocks(
    layers: Sequence[LayerMaps], *, budget: int, packer: Packer
) -> tuple[KeyChoice, dict[str, NDArray[Any]]]:
    """Return which keys of `layers` fit into `budget` bytes of page, and their blocks.

    For each layer `top_counts/{layer}` `[num_heads, seq_len]` uint8, and `top_keys/{layer}` and
    `top_weights/{layer}` with one number for every entry counted; within a row in the order of the text.
    """
    codes = [as_ink(maps.top_weights) for maps in layers]
    counted = np.sum([_by_rank_and_code(one) for one in codes], axis=0)
    # The bytes of an entry are estimated from one layer, and known after the first attempt.
    middle = len(layers) // 2
    choice = KeyChoice(counted.shape[0], counted.shape[0], 1)
    sample = _layer_blocks(layers[middle], codes[middle], choice)
    entry_bytes = packer.size(*sample.values()) / max(1, _entries(_by_rank_and_code(codes[middle]), choice))
    while True:
        choice = _choose(counted, budget / entry_bytes)
        blocks: dict[str, NDArray[Any]] = {}
        for maps, layer_codes in zip(layers, codes, strict=True):
            blocks |= _layer_blocks(maps, layer_codes, choice)
        size, entries = packer.size(*blocks.values()), _entries(counted, choice)
        if size <= budget or not entries:
            return choice, blocks
        entry_bytes = CLOSER * size / entries


def _by_rank_and_code(codes: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Count the entries of each rank in its row and each code, `[top_k, 256]`."""
    return np.stack(
        [np.bincount(codes[..., rank].ravel(), minlength=CODES) for rank in range(codes.shape[-1])]
    )


def _entries(counted: NDArray[np.int64], choice: KeyChoice) -> int:
    return int(counted[: choice.always, 1:].sum() + counted[choice.always :, choice.from_code :].sum())


def _choose(counted: NDArray[np.int64], room: float) -> KeyChoice:
    """Return the choice with the most entries that are not more than `room`; code 0 is never an entry."""
    at_most = counted.shape[0]
    for always in ALWAYS:
        for from_code in range(1, CODES + 1):
            choice = KeyChoice(min(always, at_most), at_most, from_code)
            if _entries(counted, choice) <= room:
                return choice
    return KeyChoice(0, at_most, CODES)


def _layer_blocks(maps: LayerMaps, codes: NDArray[np.uint8], choice: KeyChoice) -> dict[str, NDArray[Any]]:
    carried = codes >= choice.from_code
    carried[..., : choice.always] = codes[..., : choice.always] > 0
    # In the order of the text, which packs better than the order of the weights and is how rows are read.
    order = np.argsort(maps.top_keys, axis=-1, kind="stable")
    keys, weights, kept = (np.take_along_axis(one, order, axis=-1) for one in (maps.top_keys, codes, carried))
    key_type = np.uint16 if maps.top_keys.size == 0 or maps.top_keys.max() < 2**16 else np.uint32
    return {
        f"top_counts/{maps.layer}": carried.sum(axis=-1, dtype=np.uint8),
        f"top_keys/{maps.layer}": keys[kept].astype(key_type),
        f"top_weights/{maps.layer}": weights[kept],
    }
