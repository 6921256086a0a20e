"""A problem on its way to compiled code: one row of 64-bit slots in memory, then the counters threads share.

What Python hands over for each call is the address of that row. To take arrays one by one, and look at the
type of each, took longer than a decode step on a short cache.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from headwise.kernels.desks import desk_at
from headwise.kernels.emission import inner
from headwise.kernels.findings import Findings, findings_at
from headwise.kernels.gradients import Gradients, gradients_at
from headwise.kernels.memory import (
    Floats,
    Integers,
    bytes_at,
    fetch_add,
    float_at,
    floats_at,
    integers_at,
    moved,
)
from headwise.kernels.packing import BFLOAT16, FLOAT16, FLOAT32, element_bytes
from headwise.kernels.problem import Desk, Problem
from headwise.kernels.schedule import LATE, NEXT_DESK, PER_HEAD

Strided: TypeAlias = tuple[int, int, int, int, int]
"""A tensor of rank 4: the address of its first element and its strides, in elements."""

_ABSENT: Strided = (0, 0, 0, 0, 0)


class Sizes(NamedTuple):
    """The sizes of a problem, in the order in which compiled code reads them."""

    batch: int
    num_heads: int
    num_kv_heads: int
    seq_len: int
    kv_len: int
    head_dim: int
    value_head_dim: int


class Operands(NamedTuple):
    """What a problem is computed from and where its results go, as addresses; 0 or None for what is absent.

    - element: the type of query, key, value and output: float32, bfloat16 or float16
    - query `[batch, num_heads, seq_len, head_dim]`, key `[batch, num_kv_heads, kv_len, head_dim]`,
      value `[batch, num_kv_heads, kv_len, value_head_dim]`, any strides; output `[batch, num_heads, seq_len,
      value_head_dim]`, the last stride 1, and logsumexp, float32 `[batch, num_heads, seq_len]`, contiguous,
      are written; so are maxima, sums and shifts, of the same form, which a visit or the backward pass reads
    - starts, stops: int64 `[batch or 1, seq_len]`, contiguous: the visible keys of each row; interval_stride:
      seq_len, or 0 if one row of them serves the batch
    - mask: bytes `[batch, num_heads, seq_len, kv_len]`, 0 hides; bias: float32 of that shape; any strides
    - owners: whose memory all this is; held on to until no thread is left in it
    - sinks: float32 `[num_heads]`; gates: float32 `[batch or 1, num_heads]`, contiguous; gate_stride:
      num_heads, or 0 if one row of them serves the batch
    - seed, threshold: which weights dropout drops (`philox`), 0 for none; growth: what multiplies the others
    """

    element: str
    query: Strided
    key: Strided
    value: Strided
    output: Strided
    starts: int
    stops: int
    interval_stride: int
    owners: object
    scale: float
    softcap: float = 0.0
    logsumexp: int = 0
    maxima: int = 0
    sums: int = 0
    shifts: int = 0
    mask: Strided | None = None
    bias: Strided | None = None
    sinks: int = 0
    gates: int = 0
    gate_stride: int = 0
    seed: int = 0
    threshold: int = 0
    growth: float = 1.0


_KINDS = {"float32": FLOAT32, "bfloat16": BFLOAT16, "float16": FLOAT16}

# Sizes, kind; five slots for each of query, key, value, output, mask and bias; then one each for the rest.
_SIZES, _KIND, _STRIDED, _SINGLE = 0, 7, 8, 38
_QUERY, _KEY, _VALUE, _OUTPUT, _MASK, _BIAS = range(_STRIDED, _SINGLE, 5)
(
    _STARTS, _STOPS, _INTERVAL_STRIDE, _LOGSUMEXP, _MAXIMA, _SUMS, _SHIFTS, _SINKS, _GATES, _GATE_STRIDE,
    _SEED, _THRESHOLD, _RING, _DESKS, _DESK_FLOATS, _BUFFERS, _EXTRA, _SCALE, _SOFTCAP, _GROWTH, _COUNTERS,
) = range(_SINGLE, _SINGLE + 21)  # fmt: skip
_WRITE = struct.Struct(f"={_SCALE}q3d").pack_into


def frame_of(
    sizes: Sizes,
    operands: Operands,
    *,
    ring: int,
    desks: int,
    desk_floats: int,
    buffers: int,
    extra: int = 0,
) -> ctypes.Array[ctypes.c_int64]:
    """Return the frame of a call; what its addresses point to must outlive it.

    - ring: how many KV heads are packed, or streamed, at a time
    - desks, buffers: addresses of the memory it is done in; desk_floats: the size of a desk
    - extra: address of the slots of `findings`, for a visit, or of `gradients`, for the backward pass
    """
    given = operands
    frame = (ctypes.c_int64 * (_COUNTERS + PER_HEAD + 2 * sizes.batch * sizes.num_kv_heads))()
    _WRITE(
        frame, 0, *sizes, _KINDS[given.element],
        *given.query, *given.key, *given.value, *given.output,
        *(given.mask or _ABSENT), *(given.bias or _ABSENT),
        given.starts, given.stops, given.interval_stride, given.logsumexp, given.maxima, given.sums,
        given.shifts, given.sinks, given.gates, given.gate_stride, given.seed, given.threshold,
        ring, desks, desk_floats, buffers, extra, given.scale, given.softcap, given.growth,
    )  # fmt: skip
    return frame


def late_threads(frame: ctypes.Array[ctypes.c_int64]) -> int:
    """Return how many threads began when all was done, once all that were asked have come."""
    return frame[_COUNTERS + LATE]


@inner
def problem_at(frame: Integers) -> Problem:
    """Return the problem of a frame."""
    kind = frame[_KIND]
    size = element_bytes(kind)
    return Problem(
        kind,
        bytes_at(frame, _QUERY), _strides(frame, _QUERY, size),
        bytes_at(frame, _KEY), _strides(frame, _KEY, size),
        bytes_at(frame, _VALUE), _strides(frame, _VALUE, size),
        bytes_at(frame, _OUTPUT), _strides(frame, _OUTPUT, size),
        floats_at(frame, _LOGSUMEXP), frame[_LOGSUMEXP] != 0,
        floats_at(frame, _MAXIMA), floats_at(frame, _SUMS), frame[_SUMS] != 0,
        floats_at(frame, _SHIFTS), frame[_SHIFTS] != 0,
        integers_at(frame, _STARTS), integers_at(frame, _STOPS), frame[_INTERVAL_STRIDE],
        bytes_at(frame, _MASK), _strides(frame, _MASK, 1), frame[_MASK] != 0,
        floats_at(frame, _BIAS), _strides(frame, _BIAS, 1), frame[_BIAS] != 0,
        floats_at(frame, _SINKS), frame[_SINKS] != 0,
        floats_at(frame, _GATES), frame[_GATE_STRIDE], frame[_GATES] != 0,
        np.float32(float_at(frame, _SCALE)), np.float32(float_at(frame, _SOFTCAP)),
        frame[_SEED], frame[_THRESHOLD], np.float32(float_at(frame, _GROWTH)), frame[_THRESHOLD] != 0,
        frame[_SIZES], frame[_SIZES + 1], frame[_SIZES + 2], frame[_SIZES + 3], frame[_SIZES + 4],
        frame[_SIZES + 5], frame[_SIZES + 6],
    )  # fmt: skip


@inner
def _strides(frame: Integers, tensor: int, size: int) -> tuple[int, int, int, int]:
    """Return the strides of a tensor's slots times the size of an element."""
    return (
        frame[tensor + 1] * size,
        frame[tensor + 2] * size,
        frame[tensor + 3] * size,
        frame[tensor + 4] * size,
    )


@inner
def seat_at(frame: Integers) -> tuple[Desk, Integers, int]:
    """Return a desk of the thread's own, its list of query heads, and the number of the seat."""
    seat = fetch_add(moved(counters_of(frame), NEXT_DESK), 1)
    desk, heads = desk_at(moved(floats_at(frame, _DESKS), seat * frame[_DESK_FLOATS]))
    return desk, heads, seat


@inner
def counters_of(frame: Integers) -> Integers:
    """Return the counters that threads share."""
    return moved(frame, _COUNTERS)


@inner
def buffers_of(frame: Integers) -> Floats:
    """Return the memory in which threads leave things for each other."""
    return floats_at(frame, _BUFFERS)


@inner
def gradients_of(frame: Integers) -> Gradients:
    """Return what the backward pass is told beside the problem."""
    return gradients_at(integers_at(frame, _EXTRA))


@inner
def findings_of(frame: Integers) -> Findings:
    """Return what a visit leaves behind."""
    return findings_at(integers_at(frame, _EXTRA))


@inner
def ring_of(frame: Integers) -> Any:
    """Return how many KV heads are packed at a time."""
    return frame[_RING]
