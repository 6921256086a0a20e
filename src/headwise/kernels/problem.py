"""One attention problem as compiled code sees it, and the memory one thread works in."""

from __future__ import annotations

from typing import Any, NamedTuple


class Problem(NamedTuple):
    """Pointers, strides and numbers; every stride of query, key, value and output counts bytes, the others elements.

    - kind: the element type (`packing`); query, key, value, output: their first bytes
    - starts, stops: visible keys of each row, `[batch or 1, seq_len]`
    - mask: bytes, not 0 where visible; bias: float32; both read where has_mask, has_bias say so
    - softcap: 0 for none
    """

    kind: int
    query: Any
    query_strides: tuple[int, int, int, int]
    key: Any
    key_strides: tuple[int, int, int, int]
    value: Any
    value_strides: tuple[int, int, int, int]
    output: Any
    output_strides: tuple[int, int, int, int]
    logsumexp: Any
    has_logsumexp: bool
    starts: Any
    stops: Any
    interval_stride: int
    mask: Any
    mask_strides: tuple[int, int, int, int]
    has_mask: bool
    bias: Any
    bias_strides: tuple[int, int, int, int]
    has_bias: bool
    sinks: Any
    has_sinks: bool
    gates: Any
    gate_stride: int
    has_gates: bool
    scale: float
    softcap: float
    batch: int
    num_heads: int
    num_kv_heads: int
    seq_len: int
    kv_len: int
    head_dim: int
    value_head_dim: int


class Desk(NamedTuple):
    """Where one thread keeps a block of rows.

    - queries `[rows, head_dim]`, scaled; weights `[rows, TILE]`, scores at first; outputs `[rows, width]`, not
      yet divided by the sum of the weights, width being value_head_dim rounded up to whole panels
    - ledger: `ledger`; shifts `[rows]`: what was taken off the bias
    - panel `[head_dim, PANEL]` and lines `[PANEL, width]`: keys and values on their way
    - number: one float32
    - positions, heads, starts, stops `[rows]`: the row's query, query head and visible keys
    - strip_starts, strip_stops: the keys of the tile that any row of a strip sees, whole panels; strip_partial:
      whether some row does not see all of them
    """

    queries: Any
    weights: Any
    outputs: Any
    ledger: Any
    shifts: Any
    panel: Any
    lines: Any
    number: Any
    positions: Any
    heads: Any
    starts: Any
    stops: Any
    strip_starts: Any
    strip_stops: Any
    strip_partial: Any
