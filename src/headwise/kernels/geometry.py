"""The sizes the kernel is built from: how it cuts keys, rows and widths."""

from __future__ import annotations

from dataclasses import dataclass

TILE = 256
"""Keys of one softmax tile. Tiles begin at multiples of it, counted from the first key, whatever the call:
part of the numeric contract, since every row's sums are cut there."""

PANEL = 16
"""Keys, or columns of the value, that lie side by side in a packed panel; one AVX-512 register."""

DESK_ROWS = 64
"""Rows for which there is room on a thread's desk: as many as are ever read beside keys that stream by."""

STRETCH = 128
"""Keys of one entry of work in the backward pass. Twice as many are 2 per cent faster on one thread, but half
as many threads find work where there is one KV head."""

LINE = 16
"""Float32 numbers of a cache line."""

CHAIN = 128
"""How many products of a score are added up one by one; a wider head_dim makes a second such sum. One chain
of 256 would be less exact than what people compare with."""

LARGEST_HEAD_DIM = 256
"""The largest head_dim and value_head_dim; beyond it a block of rows would leave the first cache."""


@dataclass(frozen=True)
class Geometry:
    """What the instruction set makes best.

    - lanes: float32 numbers in one vector register
    - block_rows: rows that share a tile of packed keys while it is in the cache; whole strips
    - strips: how many rows' products with one panel the micro-kernel keeps in registers, every size of strip
      that there is code for
    - column_strip: the same where it reads rows as columns; `STRETCH` is a multiple
    - worth_streaming: how many numbers the keys and values of a KV head must have, for each row squared, so
      that it pays to read them as they lie
    """

    lanes: int
    block_rows: int
    strips: tuple[int, ...]
    column_strip: int
    worth_streaming: int

    @property
    def strip_rows(self) -> int:
        """The rows of the largest strip."""
        return max(self.strips)


# A strip of n rows takes (n + 1) x PANEL / lanes registers and one for the row's number: 10 of 32, 15 of 16
# and 25 of 32 (six rows on NEON, 29 registers, LLVM 22 spills for some processors). Eight sums keep the
# multipliers busy, and the ways in and out of so short a strip overlap; those of 24 cost 40 to 90 cycles.
# Measured for AVX-512 and AVX2; NEON, which has not been run, is taken to stream like AVX2.
GEOMETRIES = {
    "avx512": Geometry(lanes=16, block_rows=32, strips=(1, 2, 4, 8), column_strip=16, worth_streaming=64),
    "avx2": Geometry(lanes=8, block_rows=24, strips=(1, 2, 3, 4, 6), column_strip=4, worth_streaming=2048),
    "neon": Geometry(lanes=4, block_rows=24, strips=(1, 2, 3, 4, 5), column_strip=4, worth_streaming=2048),
}
