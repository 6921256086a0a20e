"""What the backward pass is told beside the problem, and where its results go: in memory of the caller."""

from __future__ import annotations

import ctypes
import struct
from typing import Any, NamedTuple

from headwise.kernels.emission import inner
from headwise.kernels.memory import Integers, bytes_at, floats_at, integers_at

_Strided = tuple[int, int, int, int]


class Gradients(NamedTuple):
    """Addresses, for Python, and pointers, for compiled code, with their strides; 0 for what is not wanted.

    The last stride of every tensor of the element type is one element; strides count bytes here, and
    elements for the bias.

    - output, and upstream, the gradient of it: `[batch, num_heads, seq_len, value_head_dim]`, both given
    - upstream_of_logsumexp: float32 `[batch, num_heads, seq_len]`, contiguous, given
    - query, key, value: of the form and element type of what they are the gradients of
    - bias: float32 `[batch or 1, num_heads or 1, seq_len or 1, kv_len]`, 0 before; a stride is 0 where the
      size is 1
    - bias_rests: as bias, what its sums lost to rounding; for biases that all rows share
    - sinks: float32 `[batch, num_heads, seq_len]`, contiguous, what each row adds to the gradient of its sink
    - turns: int64, 0 before: `[batch, num_kv_heads, blocks]` and then `[batch, num_kv_heads, stretches]`, by
      which threads add up in one order
    - shares_bias: whether several KV heads or batch elements add to one number of the bias
    """

    output: Any
    output_strides: _Strided
    upstream: Any
    upstream_strides: _Strided
    upstream_of_logsumexp: Any
    query: Any
    query_strides: _Strided
    key: Any
    key_strides: _Strided
    value: Any
    value_strides: _Strided
    bias: Any
    bias_strides: _Strided
    bias_rests: Any
    sinks: Any
    turns: Any
    shares_bias: Any
    has_upstream_of_logsumexp: Any
    has_query: Any
    has_key: Any
    has_value: Any
    has_bias: Any
    has_bias_rests: Any
    has_sinks: Any


_SLOTS = len(Gradients._fields) + 3 * 6


def slots_of(gradients: Gradients) -> ctypes.Array[ctypes.c_int64]:
    """Return the addresses, strides and flags as compiled code reads them."""
    numbers: list[int] = []
    for each in gradients:
        numbers.extend(each if isinstance(each, tuple) else (each,))
    slots = (ctypes.c_int64 * _SLOTS)()
    struct.pack_into(f"={_SLOTS}q", slots, 0, *numbers)
    return slots


@inner
def gradients_at(slots: Integers) -> Gradients:
    """Return the gradients of a row of slots, its addresses as pointers."""
    return Gradients(
        bytes_at(slots, 0), _strides(slots, 1), bytes_at(slots, 5), _strides(slots, 6), floats_at(slots, 10),
        bytes_at(slots, 11), _strides(slots, 12), bytes_at(slots, 16), _strides(slots, 17),
        bytes_at(slots, 21), _strides(slots, 22), floats_at(slots, 26), _strides(slots, 27),
        floats_at(slots, 31), floats_at(slots, 32), integers_at(slots, 33), slots[34] != 0, slots[35] != 0,
        slots[36] != 0, slots[37] != 0, slots[38] != 0, slots[39] != 0, slots[40] != 0, slots[41] != 0,
    )  # fmt: skip


@inner
def _strides(slots: Integers, first: int) -> tuple[int, int, int, int]:
    return slots[first], slots[first + 1], slots[first + 2], slots[first + 3]
