"""The weighted sum where a value is NaN or infinite, which must not reach a row that does not see it.

`0 * NaN` is NaN, so a weight of 0 does not keep a hidden value out of a product. Here hidden keys are left
out altogether. For finite values the sums are those of the micro-kernel, bit for bit: leaving a key out is
adding `0 * value`.
"""

from __future__ import annotations

import math

import numpy as np

from headwise.kernels.emission import inner
from headwise.kernels.geometry import TILE
from headwise.kernels.memory import Floats, fused, line_of, moved
from headwise.kernels.packing import widen_number
from headwise.kernels.problem import Desk, Problem
from headwise.kernels.rows import sees


@inner
def sum_carefully(
    problem: Problem,
    desk: Desk,
    batch: int,
    kv_head: int,
    row: int,
    tile: int,
    start: int,
    stop: int,
    sums: Floats,
) -> None:
    """Write one row's weighted sum over the keys `start .. stop` of a tile."""
    strides = problem.value_strides
    weights = moved(desk.weights, row * TILE)
    for column in range(problem.value_head_dim):
        sums[column] = 0.0
    for key in range(start, min(stop, problem.kv_len - tile)):
        if not sees(problem, desk, batch, row, tile + key):
            continue
        line = line_of(problem.value, strides, batch, kv_head, tile + key)
        for column in range(problem.value_head_dim):
            widen_number(problem.kind, moved(line, column * strides[3]), desk.number)
            value = desk.number[0]
            weight = weights[key]
            if weight == 0.0 and not math.isfinite(value):
                weight = np.float32(1.0)  # seen, and only too small a weight for float32
            sums[column] = fused(weight, value, sums[column])
