"""What one thread can do at most on this machine: multiply and add in registers, and read memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numpy.typing import NDArray

from headwise.kernels.compiled import kept_on_disk
from headwise.kernels.emission import INT64, FloatPointer, Lanes, counting, function_of, integer, intrinsic
from headwise.kernels.entry import name_on_disk
from headwise.kernels.host import GEOMETRY
from headwise.kernels.memory import pointer_to

_RUNS = 7
_ROUNDS = 2_000_000
_BUFFER_BYTES = 256 * 2**20
"""Far more than any cache that one thread gets to itself."""

# A sum is there after four or five clocks, and two to four begin in each. So many chains hide that, and with
# their factor and addend they stay within 16 or 32 registers.
_CHAINS = {4: 24, 8: 12, 16: 24}[GEOMETRY.lanes]
_STREAMS = 8


def fma_rates(*, meet: Callable[[], object], clock: Callable[[], float]) -> list[float]:
    """Return the float32 operations per second of one thread that does nothing but fused multiply-adds.

    One rate for each of some runs; `meet` is called before each, so that several threads can begin together.
    """
    run, operands = _multiplying(), np.full(GEOMETRY.lanes, 0.5, dtype=np.float32)
    operations = 2.0 * GEOMETRY.lanes * _CHAINS * _ROUNDS
    return [operations / taken for taken in _seconds(lambda: run(operands, _ROUNDS), meet, clock)]


def read_rates(*, meet: Callable[[], object], clock: Callable[[], float]) -> list[float]:
    """Return the bytes per second of one thread that reads a buffer too large for its caches, as above."""
    run, buffer = _reading(), np.ones(_BUFFER_BYTES // 4, dtype=np.float32)
    return [buffer.nbytes / taken for taken in _seconds(lambda: run(buffer, buffer.size), meet, clock)]


def read(numbers: NDArray[np.float32]) -> None:
    """Read an array once as `read_rates` does; what does not fill a last step is left out."""
    step = _STREAMS * GEOMETRY.lanes
    _reading()(numbers, numbers.size // step * step)


def _seconds(
    run: Callable[[], object], meet: Callable[[], object], clock: Callable[[], float]
) -> list[float]:
    """Return what each of several runs takes."""
    found = []
    for _ in range(_RUNS):
        meet()
        start = clock()
        run()
        found.append(clock() - start)
    return found


def _emit_multiplying(builder: ir.IRBuilder, operands: ir.Value, rounds: ir.Value) -> None:
    """Write chains of `sum = sum * factor + addend`, all in registers, and leave their total in memory."""
    lanes = Lanes(builder, GEOMETRY.lanes)
    factor, addend = (lanes.splat(builder.load(lanes.at(operands, place))) for place in range(2))
    chains = _zeros(lanes, _CHAINS)
    with counting(builder, integer(0), rounds, 1):
        for chain in chains:
            builder.store(lanes.fma(builder.load(chain), factor, addend), chain)
    _leave_total(lanes, chains, operands)


def _emit_reading(builder: ir.IRBuilder, buffer: ir.Value, size: ir.Value) -> None:
    """Write sums over the buffer, vector after vector, and leave their total in it."""
    lanes = Lanes(builder, GEOMETRY.lanes)
    streams = _zeros(lanes, _STREAMS)
    with counting(builder, integer(0), size, _STREAMS * lanes.lanes) as place:
        line = lanes.at(buffer, place)
        for number, stream in enumerate(streams):
            found = lanes.load(line, number * lanes.lanes)
            builder.store(builder.fadd(builder.load(stream), found), stream)
    _leave_total(lanes, streams, buffer)


def _zeros(lanes: Lanes, count: int) -> list[ir.Value]:
    places = [cgutils.alloca_once(lanes.builder, lanes.type) for _ in range(count)]
    for place in places:
        lanes.builder.store(lanes.constant(0.0), place)
    return places


def _leave_total(lanes: Lanes, places: list[ir.Value], target: ir.Value) -> None:
    """Use every lane of every result: what nobody reads would not be computed. The target stays."""
    builder = lanes.builder
    total = lanes.constant(0.0)
    for place in places:
        total = builder.fadd(total, builder.load(place))
    lanes.store(lanes.fma(total, lanes.constant(0.0), lanes.load(target)), target)


@intrinsic
def _multiply_in_registers(_context: Any, operands: types.CPointer, rounds: types.Integer) -> tuple[Any, Any]:
    return types.void(FloatPointer, types.int64), _calling(_emit_multiplying)


@intrinsic
def _read_through(_context: Any, buffer: types.CPointer, size: types.Integer) -> tuple[Any, Any]:
    return types.void(FloatPointer, types.int64), _calling(_emit_reading)


def _calling(emit: Callable[..., None]) -> Callable[..., Any]:
    def lower(context: Any, builder: ir.IRBuilder, _signature: Any, values: Any) -> Any:
        kinds = [context.get_value_type(FloatPointer), INT64]
        builder.call(function_of(builder.module, emit, kinds), list(values))
        return context.get_dummy_value()

    return lower


_SIGNATURE = types.void(types.Array(types.float32, 1, "C"), types.int64)


@cache
def _multiplying() -> Any:
    def multiply(operands: Any, rounds: int) -> None:
        _multiply_in_registers(pointer_to(operands), rounds)

    return _compiled(multiply)


@cache
def _reading() -> Any:
    def read(buffer: Any, size: int) -> None:
        _read_through(pointer_to(buffer), size)

    return _compiled(read)


def _compiled(function: Callable[..., None]) -> Any:
    def make(source: str, *, on_disk: bool) -> Any:
        name_on_disk(function, function.__name__, source)
        return njit(_SIGNATURE, nogil=True, cache=on_disk)(function)

    return kept_on_disk(make)
