"""What a visit leaves behind, in memory of the caller, and how compiled code is told where."""

from __future__ import annotations

import ctypes
import struct
from typing import Any, NamedTuple

from headwise.kernels.emission import inner
from headwise.kernels.memory import Integers, floats_at, integers_at

ENTROPY, LARGEST_WEIGHT, FIRST_TOKEN, MEAN_DISTANCE, LOCAL, NUMBERS = range(6)
"""The numbers that every row has, in the order in which they lie in `Findings.numbers`."""

SELF = 0
"""The place of the row's own key among the offsets: where it is hidden its weight counts as 0."""


class Findings(NamedTuple):
    """Addresses, for Python, and pointers, for compiled code; 0 for what is not collected. All contiguous.

    - maxima, sums: float32 `[batch, num_heads, seq_len]`, what the softmax of each row was made with
    - numbers: float32 `[NUMBERS, batch, num_heads, seq_len]`
    - largest_keys: int64 `[batch, num_heads, seq_len]`
    - first_keys: int64 `[batch]`, the first token's key, negative for none
    - offsets: int64 `[num_offsets]`, of which the first is 0
    - at_offsets: float32 `[batch, num_heads, seq_len, num_offsets]`
    - local_window: how far a key may be to count as local
    - row_places: int64 `[seq_len]`, where the weights of a row are kept, negative for nowhere;
      kept_weights: float32 `[batch, num_heads, num_kept, kv_len]`, 0 before
    - top_weights, top_keys: float32 and int64 `[batch, num_heads, seq_len, top_k]`
    - chunk_rows: how many queries one entry of the list of work looks at
    - received: float32 `[chunks, batch, num_heads, kv_len]`, 0 before
    - pooled: float32 `[batch, num_heads, chunks, chunk_cells, key_cells]`, 0 before: the mass of the rows of
      a cell, in each chunk those cells that begin with the one of its first row; row_cells of them in all.
      Where only `received` is collected there is one cell and chunk_cells is 0.
    """

    maxima: Any
    sums: Any
    numbers: Any
    largest_keys: Any
    first_keys: Any
    offsets: Any
    at_offsets: Any
    row_places: Any
    kept_weights: Any
    top_weights: Any
    top_keys: Any
    received: Any
    pooled: Any
    num_offsets: int
    local_window: int
    num_kept: int
    top_k: int
    chunk_rows: int
    chunk_cells: int
    row_cells: int
    key_cells: int
    collects_received: int


_WRITE = struct.Struct(f"={len(Findings._fields)}q").pack_into


def slots_of(findings: Findings) -> ctypes.Array[ctypes.c_int64]:
    """Return the findings' addresses and numbers as compiled code reads them."""
    slots = (ctypes.c_int64 * len(findings))()
    _WRITE(slots, 0, *findings)
    return slots


@inner
def findings_at(slots: Integers) -> Findings:
    """Return the findings of a row of slots, its addresses as pointers."""
    return Findings(
        floats_at(slots, 0), floats_at(slots, 1), floats_at(slots, 2), integers_at(slots, 3),
        integers_at(slots, 4), integers_at(slots, 5), floats_at(slots, 6), integers_at(slots, 7),
        floats_at(slots, 8), floats_at(slots, 9), integers_at(slots, 10), floats_at(slots, 11),
        floats_at(slots, 12), slots[13], slots[14], slots[15], slots[16], slots[17], slots[18], slots[19],
        slots[20], slots[21],
    )  # fmt: skip
