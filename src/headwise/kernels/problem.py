"""One attention problem as compiled code sees it, and the memory one thread works in."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headwise.kernels.memory import Bytes, Floats, Integers


class Problem(NamedTuple):
    """Pointers, strides and numbers.

    Strides of query, key, value and output count bytes, the others elements.

    - kind: the element type (`packing`); query, key, value, output: their first bytes
    - logsumexp, maxima, sums, shifts `[batch, num_heads, seq_len]`: written where has_logsumexp, has_sums,
      has_shifts say so; the last three are what the softmax of a row was made with, shifts what was taken
      off its bias
    - starts, stops: visible keys of each row, `[batch or 1, seq_len]`
    - mask: bytes, not 0 where visible; bias: float32; both read where has_mask, has_bias say so
    - softcap: 0 for none
    - seed, threshold, growth: those of dropout (`philox`), read where has_dropout says so; growth is 1 else
    """

    kind: int
    query: Bytes
    query_strides: tuple[int, int, int, int]
    key: Bytes
    key_strides: tuple[int, int, int, int]
    value: Bytes
    value_strides: tuple[int, int, int, int]
    output: Bytes
    output_strides: tuple[int, int, int, int]
    logsumexp: Floats
    has_logsumexp: bool
    maxima: Floats
    sums: Floats
    has_sums: bool
    shifts: Floats
    has_shifts: bool
    starts: Integers
    stops: Integers
    interval_stride: int
    mask: Bytes
    mask_strides: tuple[int, int, int, int]
    has_mask: bool
    bias: Floats
    bias_strides: tuple[int, int, int, int]
    has_bias: bool
    sinks: Floats
    has_sinks: bool
    gates: Floats
    gate_stride: int
    has_gates: bool
    scale: np.float32
    softcap: np.float32
    seed: int
    threshold: int
    growth: np.float32
    has_dropout: bool
    batch: int
    num_heads: int
    num_kv_heads: int
    seq_len: int
    kv_len: int
    head_dim: int
    value_head_dim: int


class Desk(NamedTuple):
    """Where one thread keeps a block of rows.

    - queries `[rows, head_dim]`, scaled; weights `[rows, TILE]`, scores at first
    - outputs `[rows, width]`, not yet divided by the sum of the weights, width being value_head_dim rounded
      up to whole panels
    - ledger: `ledger`; shifts `[rows]`: what was taken off the bias
    - panel `[head_dim, PANEL]` and lines `[width / PANEL, PANEL, PANEL]`: keys and values on their way
    - number: one float32, where vector code leaves a result
    - positions, heads, starts, stops `[rows]`: the row's query, query head and visible keys
    - offsets `[rows]`: where the row lies in the query or the output, in bytes
    - divisors, gates `[rows]`: what its output is divided and multiplied by
    - strip_starts, strip_stops: the keys of the tile that any row of a strip sees, whole panels
    - strip_partial: whether some row does not see all of them
    """

    queries: Floats
    weights: Floats
    outputs: Floats
    ledger: Floats
    shifts: Floats
    divisors: Floats
    gates: Floats
    panel: Floats
    lines: Floats
    number: Floats
    positions: Integers
    heads: Integers
    starts: Integers
    stops: Integers
    offsets: Integers
    strip_starts: Integers
    strip_stops: Integers
    strip_partial: Integers
