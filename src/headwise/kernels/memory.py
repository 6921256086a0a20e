"""Pointers, and the few instructions by which threads agree, for Numba code."""

from __future__ import annotations

from typing import Any, TypeAlias

from llvmlite import ir
from numba import types
from numba.core import cgutils

from headwise.kernels.emission import (
    FLOAT,
    INT32,
    INT64,
    BytePointer,
    FloatPointer,
    IntegerPointer,
    ask_for_line,
    intrinsic,
    leaf,
)
from headwise.kernels.host import INSTRUCTION_SET

Floats: TypeAlias = Any
"""A pointer to float32 numbers: indexed as a list is, and moved by `moved`. Only Numba knows its type; this
name and the two below tell a reader what a type checker cannot know."""

Integers: TypeAlias = Any
"""A pointer to 64-bit integers."""

Bytes: TypeAlias = Any
"""A pointer to bytes: to numbers of whatever element type, or of a mask."""


@intrinsic
def pointer_to(_context: Any, array: types.Array) -> tuple[Any, Any]:
    """Return a pointer to the first element of an array, which must be kept alive by the caller."""

    def lower(context: Any, builder: ir.IRBuilder, signature: Any, values: Any) -> ir.Value:
        return context.make_array(signature.args[0])(context, builder, values[0]).data

    return types.CPointer(array.dtype)(array), lower


@intrinsic
def bytes_of(_context: Any, array: types.Array) -> tuple[Any, Any]:
    """Return a pointer to the first byte of an array of any element type."""

    def lower(context: Any, builder: ir.IRBuilder, signature: Any, values: Any) -> ir.Value:
        data = context.make_array(signature.args[0])(context, builder, values[0]).data
        return builder.bitcast(data, cgutils.voidptr_t)

    return BytePointer(array), lower


@intrinsic
def moved(_context: Any, pointer: types.CPointer, offset: types.Integer) -> tuple[Any, Any]:
    """Return the pointer moved by `offset` elements."""

    def lower(_context: Any, builder: ir.IRBuilder, _signature: Any, values: Any) -> ir.Value:
        return builder.gep(values[0], [values[1]])

    return pointer(pointer, types.int64), lower


@leaf
def line_of(tensor: Any, strides: tuple[int, int, int, int], batch: int, head: int, place: int) -> Any:
    """Return a pointer to the first number of one row of a tensor, of the kind that `tensor` is."""
    return moved(tensor, batch * strides[0] + head * strides[1] + place * strides[2])


@intrinsic
def fetch_add(_context: Any, pointer: types.CPointer, number: types.Integer) -> tuple[Any, Any]:
    """Add to an integer that threads share and return what it was before."""

    def lower(_context: Any, builder: ir.IRBuilder, _signature: Any, values: Any) -> ir.Value:
        return builder.atomic_rmw("add", values[0], values[1], "seq_cst")

    return types.int64(pointer, types.int64), lower


@intrinsic
def load_shared(_context: Any, pointer: types.CPointer) -> tuple[Any, Any]:
    """Read an integer that threads share, and all that was written before it was last changed."""

    def lower(_context: Any, builder: ir.IRBuilder, _signature: Any, values: Any) -> ir.Value:
        return builder.load_atomic(values[0], "acquire", 8)

    return types.int64(pointer), lower


@intrinsic
def yield_thread(_context: Any) -> tuple[Any, Any]:
    """Let another thread run; POSIX `sched_yield`."""

    def lower(context: Any, builder: ir.IRBuilder, _signature: Any, _values: Any) -> ir.Value:
        kind = ir.FunctionType(INT32, [])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), lower


@intrinsic
def ask_for(_context: Any, pointer: types.CPointer) -> tuple[Any, Any]:
    """Ask for the line of memory at a pointer, which is read later, into the second cache."""

    def lower(context: Any, builder: ir.IRBuilder, _signature: Any, values: Any) -> ir.Value:
        ask_for_line(builder, builder.bitcast(values[0], cgutils.voidptr_t))
        return context.get_dummy_value()

    return types.void(pointer), lower


@intrinsic
def fused(_context: Any, left: types.Float, right: types.Float, addend: types.Float) -> tuple[Any, Any]:
    """Return `left * right + addend` of float32 numbers, rounded once, as the micro-kernel does."""

    def lower(_context: Any, builder: ir.IRBuilder, _signature: Any, values: Any) -> ir.Value:
        kind = ir.FunctionType(FLOAT, [FLOAT] * 3)
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.fma.f32"), values)

    return types.float32(types.float32, types.float32, types.float32), lower


@intrinsic
def set_float_mode(_context: Any, mode: types.Integer) -> tuple[Any, Any]:
    """Set how this thread rounds and treats denormal numbers (x86: MXCSR) and return how it did; else 0."""

    def lower(_context: Any, builder: ir.IRBuilder, _signature: Any, values: Any) -> ir.Value:
        if INSTRUCTION_SET == "neon":
            return ir.Constant(INT32, 0)
        place = cgutils.alloca_once(builder, INT32)
        pointer = builder.bitcast(place, cgutils.voidptr_t)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t])
        read, write = (
            cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.sse.{name}")
            for name in ("stmxcsr", "ldmxcsr")
        )
        builder.call(read, [pointer])
        before = builder.load(place)
        builder.store(values[0], place)
        builder.call(write, [pointer])
        return before

    return types.int32(types.int32), lower


def _pointer_at(kind: types.CPointer) -> Any:
    """Return an intrinsic that reads a pointer of one kind from a slot."""

    @intrinsic
    def read(_context: Any, slots: types.CPointer, slot: types.Integer) -> tuple[Any, Any]:
        def lower(context: Any, builder: ir.IRBuilder, _signature: Any, values: Any) -> ir.Value:
            pointer = context.get_value_type(kind)
            place = builder.bitcast(builder.gep(values[0], [values[1]]), pointer.as_pointer())
            return builder.load(place)

        return kind(slots, types.int64), lower

    return read


bytes_at, floats_at, integers_at = map(_pointer_at, (BytePointer, FloatPointer, IntegerPointer))
"""The pointer that a 64-bit slot holds: `floats_at(slots, slot)`."""


@intrinsic
def float_at(_context: Any, slots: types.CPointer, slot: types.Integer) -> tuple[Any, Any]:
    """Return the float64 number that a 64-bit slot holds."""

    def lower(_context: Any, builder: ir.IRBuilder, _signature: Any, values: Any) -> ir.Value:
        place = builder.gep(values[0], [values[1]])
        return builder.load(builder.bitcast(place, ir.DoubleType().as_pointer()))

    return types.float64(slots, types.int64), lower


@intrinsic
def as_floats(_context: Any, pointer: types.CPointer) -> tuple[Any, Any]:
    """Return a pointer to float32 numbers at the same place."""

    def lower(_context: Any, builder: ir.IRBuilder, _signature: Any, values: Any) -> ir.Value:
        return builder.bitcast(values[0], FLOAT.as_pointer())

    return FloatPointer(pointer), lower


@intrinsic
def as_integers(_context: Any, pointer: types.CPointer) -> tuple[Any, Any]:
    """Return a pointer to 64-bit integers at the same place."""

    def lower(_context: Any, builder: ir.IRBuilder, _signature: Any, values: Any) -> ir.Value:
        return builder.bitcast(values[0], INT64.as_pointer())

    return IntegerPointer(pointer), lower
