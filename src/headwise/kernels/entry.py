"""The one way in: NumPy arrays become a problem, and the calling thread works at it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from headwise.kernels.desks import DESK_FLOATS, desk_of
from headwise.kernels.emission import inner, write_addresses
from headwise.kernels.memory import Floats, Integers, bytes_of, fetch_add, moved, pointer_to, set_float_mode
from headwise.kernels.problem import Desk, Problem
from headwise.kernels.schedule import (
    FINISHED,
    NEXT_DESK,
    pack_or_attend,
    packed_entries_per_head,
    stream,
    streamed_entries_per_head,
    take_entry,
    tick_off,
    wait_for,
)

HAS_LOGSUMEXP, HAS_MASK, HAS_BIAS, HAS_SINKS, HAS_GATES = (1 << bit for bit in range(5))
"""Which of the arrays that may be absent are there; an array of size 1 stands in for one that is not."""


_IEEE = np.int32(0x1F80)
"""x86's MXCSR as it is when a program starts: to nearest, denormals kept. The caller may have told torch to
flush them, and the bits would depend on which thread did what."""


def _array(element: types.Type, rank: int) -> types.Array:
    return types.Array(element, rank, "A")


def signature(element: types.Type) -> Any:
    """Return the types of an entry's arguments for tensors of one element type.

    16-bit numbers come as int16; `kind` says which they are.
    """
    tensor, positions = _array(element, 4), _array(types.int64, 2)
    integers, floats = _array(types.int64, 1), {rank: _array(types.float32, rank) for rank in range(1, 5)}
    given = types.Tuple((
        tensor, tensor, tensor, tensor, floats[3],  # query, key, value, output, logsumexp
        positions, positions,  # starts, stops
        _array(types.uint8, 4), floats[4], floats[1], floats[2],  # mask, bias, sinks, gates
    ))  # fmt: skip
    # scale, softcap, the element type's number, which arrays are present
    numbers = types.Tuple((types.float64, types.float64, types.int64, types.int64))
    # counters, floats of the desks, integers of the desks, buffers
    shared = types.Tuple((integers, floats[1], integers, floats[1]))
    ring, is_caller = types.int64, types.boolean
    return types.void(given, numbers, shared, ring, is_caller)


@inner
def _step(array: Any) -> int:
    """Return how many elements lie between the rows of a contiguous array; 0 if its one row serves all."""
    return 0 if array.shape[0] == 1 else array.shape[1]


@inner
def _elements(strides: tuple[int, int, int, int], size: int) -> tuple[int, int, int, int]:
    """Return byte strides as numbers of elements."""
    return strides[0] // size, strides[1] // size, strides[2] // size, strides[3] // size


@inner
def _problem_of(given: Any, numbers: Any) -> Problem:
    """Return the problem of an entry's first two arguments."""
    query, key, value, output, logsumexp, starts, stops, mask, bias, sinks, gates = given
    scale, softcap, kind, present = numbers
    return Problem(
        kind,
        bytes_of(query), query.strides, bytes_of(key), key.strides, bytes_of(value), value.strides,
        bytes_of(output), output.strides, pointer_to(logsumexp), present & HAS_LOGSUMEXP != 0,
        pointer_to(starts), pointer_to(stops), _step(starts),
        pointer_to(mask), mask.strides, present & HAS_MASK != 0,
        pointer_to(bias), _elements(bias.strides, 4), present & HAS_BIAS != 0,
        pointer_to(sinks), present & HAS_SINKS != 0,
        pointer_to(gates), _step(gates), present & HAS_GATES != 0,
        np.float32(scale), np.float32(softcap),
        query.shape[0], query.shape[1], key.shape[1],
        query.shape[2], key.shape[2], query.shape[3], value.shape[3],
    )  # fmt: skip


@inner
def _seated(shared: Any) -> tuple[Desk, Integers, Integers, Floats]:
    """Return a desk of the thread's own, its list of query heads, the counters and the buffers."""
    counters, desks, integers, buffers = shared
    seat = fetch_add(moved(pointer_to(counters), NEXT_DESK), 1)
    integers_per_desk = integers.size // (desks.size // DESK_FLOATS)
    desk, group = desk_of(
        moved(pointer_to(desks), seat * DESK_FLOATS), moved(pointer_to(integers), seat * integers_per_desk)
    )
    return desk, group, pointer_to(counters), pointer_to(buffers)


def compile_packed(element: types.Type, source: str, *, on_disk: bool) -> Any:
    """Return the compiled way through `packed` for one element type; `source` names all it is made from.

    Every thread that works at a problem calls it with the same arrays. The caller's own call comes back when
    all entries of the list are done, a helper's as soon as none is left to take.
    """

    def entry(given: Any, numbers: Any, shared: Any, ring: int, is_caller: bool) -> None:
        callers_mode = set_float_mode(_IEEE)
        problem = _problem_of(given, numbers)
        desk, group, counters, buffers = _seated(shared)
        count = problem.batch * problem.num_kv_heads * packed_entries_per_head(problem)
        taken = take_entry(counters)
        while taken < count:
            pack_or_attend(problem, desk, group, counters, buffers, ring, taken)
            tick_off(counters)
            taken = take_entry(counters)
        if is_caller:
            wait_for(moved(counters, FINISHED), count)
        set_float_mode(callers_mode)

    return _compiled(entry, f"packed_{element}", source, signature(element), on_disk=on_disk)


def compile_streamed(element: types.Type, source: str, *, on_disk: bool) -> Any:
    """Return the compiled way through `streamed`, called as that through `packed` is.

    The loop stands in both: what Numba keeps on disk may not close over the function it calls.
    """

    def entry(given: Any, numbers: Any, shared: Any, _ring: int, is_caller: bool) -> None:
        callers_mode = set_float_mode(_IEEE)
        problem = _problem_of(given, numbers)
        desk, group, counters, buffers = _seated(shared)
        count = problem.batch * problem.num_kv_heads * streamed_entries_per_head(problem)
        taken = take_entry(counters)
        while taken < count:
            stream(problem, desk, group, counters, buffers, taken)
            tick_off(counters)
            taken = take_entry(counters)
        if is_caller:
            wait_for(moved(counters, FINISHED), count)
        set_float_mode(callers_mode)

    return _compiled(entry, f"streamed_{element}", source, signature(element), on_disk=on_disk)


def compile_vector_code(source: str, *, on_disk: bool) -> Any:
    """Return a function that writes the addresses of the vector functions, in the order of `EMITTED`."""

    def addresses(table: Any) -> None:
        write_addresses(pointer_to(table))

    kind = types.void(_array(types.int64, 1))
    return _compiled(addresses, "vector_code", source, kind, on_disk=on_disk)


def _compiled(function: Any, name: str, source: str, kind: Any, *, on_disk: bool) -> Any:
    name_on_disk(function, name, source)
    options = {"nogil": True, "cache": on_disk, "error_model": "numpy", "no_cfunc_wrapper": True}
    return njit(kind, **options)(function)


def name_on_disk(function: Any, name: str, source: str) -> None:
    """Name a function after all that it is made from, before it is compiled.

    Numba keeps one index on disk for each qualified name and counts its files in it. Two processes that wrote
    different code under one name at the same moment would mix it up.
    """
    function.__qualname__ = f"{name}_{source[:16]}"
