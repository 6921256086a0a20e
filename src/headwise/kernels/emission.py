"""The small steps from which vector code is emitted as LLVM instructions.

Numba has no vector type, so vectors live only inside the functions emitted here: pointers and integers go in,
and what comes out lies in memory. Pointers are typed and moved by `getelementptr` alone; arithmetic on
pointers turned into integers is what LLVM 22 can miscompile.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import numba.extending
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils

from headwise.kernels.ways import EVERY_WAY, GROUPS

FLOAT = ir.FloatType()
INT32 = ir.IntType(32)
INT64 = ir.IntType(64)

FloatPointer = types.CPointer(types.float32)
BytePointer = types.CPointer(types.uint8)
IntegerPointer = types.CPointer(types.int64)

_Compiled = TypeVar("_Compiled", bound=Callable[..., Any])
_Arguments = ParamSpec("_Arguments")

_FROM_COMPILED_CODE = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def inner(function: _Compiled) -> _Compiled:
    """Mark what compiled code calls and Python never does: no way in from Python is made for it.

    Numba takes the types from each call; annotations are for the reader.
    """
    compiled: _Compiled = njit(**_FROM_COMPILED_CODE)(function)
    return compiled


def leaf(function: _Compiled) -> _Compiled:
    """Mark the same where it is small and called often, to be put in place of its calls.

    A call hands over a whole problem, some seventy values.
    """
    compiled: _Compiled = njit(forceinline=True, **_FROM_COMPILED_CODE)(function)
    return compiled


def intrinsic(
    typing: Callable[Concatenate[Any, _Arguments], tuple[Any, Any]],
) -> Callable[_Arguments, Any]:
    """Make a function that returns a signature, and what emits the code, into one that compiled code calls.

    Its first argument, the typing context, is Numba's affair; the others are types here and values in a call.
    """
    callable_there: Callable[_Arguments, Any] = numba.extending.intrinsic(typing)
    return callable_there


_ALIGNMENT = {"float": 4, "half": 2, "i16": 2, "i8": 1}


def vector(lanes: int, element: ir.Type = FLOAT) -> ir.Type:
    """Return the type of so many elements side by side."""
    return ir.VectorType(element, lanes)


def integer(number: int) -> ir.Constant:
    """Return a 64-bit constant."""
    return ir.Constant(INT64, number)


class Lanes:
    """Instructions on vectors of one width, written at the place of a builder."""

    def __init__(self, builder: ir.IRBuilder, lanes: int) -> None:
        self.builder = builder
        self.lanes = lanes
        self.type = vector(lanes)

    def constant(self, number: float) -> ir.Constant:
        """Return a vector with `number` in every lane."""
        return ir.Constant(self.type, [number] * self.lanes)

    def at(self, pointer: ir.Value, offset: ir.Value | int) -> ir.Value:
        """Return the pointer moved by `offset` elements."""
        return self.builder.gep(pointer, [integer(offset) if isinstance(offset, int) else offset])

    def load(self, pointer: ir.Value, offset: ir.Value | int = 0) -> ir.Value:
        """Return the vector that starts `offset` elements behind a pointer, aligned or not."""
        element = pointer.type.pointee
        place = self.builder.bitcast(self.at(pointer, offset), vector(self.lanes, element).as_pointer())
        found = self.builder.load(place)
        found.align = _ALIGNMENT[str(element)]
        return found

    def store(self, value: ir.Value, pointer: ir.Value, offset: ir.Value | int = 0) -> None:
        """Write a vector `offset` elements behind a pointer."""
        element = pointer.type.pointee
        place = self.builder.bitcast(self.at(pointer, offset), vector(self.lanes, element).as_pointer())
        self.builder.store(value, place).align = _ALIGNMENT[str(element)]

    def splat(self, scalar: ir.Value) -> ir.Value:
        """Return a vector with one scalar in every lane."""
        empty = ir.Constant(self.type, ir.Undefined)
        first = self.builder.insert_element(empty, scalar, ir.Constant(INT32, 0))
        everywhere = ir.Constant(vector(self.lanes, INT32), [0] * self.lanes)
        return self.builder.shuffle_vector(first, empty, everywhere)

    def shuffle(self, left: ir.Value, right: ir.Value, order: list[int]) -> ir.Value:
        """Return the elements of both vectors that `order` names, those of `right` counted on from `left`."""
        return self.builder.shuffle_vector(left, right, ir.Constant(vector(len(order), INT32), order))

    def fma(self, left: ir.Value, right: ir.Value, addend: ir.Value) -> ir.Value:
        """Return `left * right + addend`, rounded once."""
        name = f"llvm.fma.v{self.lanes}f32"
        kind = ir.FunctionType(self.type, [self.type] * 3)
        fma = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(fma, [left, right, addend])

    def larger(self, left: ir.Value, right: ir.Value) -> ir.Value:
        """Return the larger of each pair; `right` where one of them is NaN."""
        return self.builder.select(self.builder.fcmp_ordered(">", left, right), left, right)

    def smaller(self, left: ir.Value, right: ir.Value) -> ir.Value:
        """Return the smaller of each pair; `right` where one of them is NaN."""
        return self.builder.select(self.builder.fcmp_ordered("<", left, right), left, right)


def ask_for_line(builder: ir.IRBuilder, pointer: ir.Value) -> None:
    """Ask for the line of memory at a pointer to bytes, which is read later, into the second cache."""
    kind = ir.FunctionType(ir.VoidType(), [pointer.type, INT32, INT32, INT32])
    ask = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    reading, second_cache, data = (ir.Constant(INT32, number) for number in (0, 2, 1))
    builder.call(ask, [pointer, reading, second_cache, data])


@contextmanager
def counting(builder: ir.IRBuilder, start: ir.Value, stop: ir.Value, step: int) -> Iterator[ir.Value]:
    """Write a loop that counts from `start` to below `stop`; its body is written inside the block."""
    with cgutils.for_range_slice(builder, start, stop, integer(step), INT64) as (position, _):
        yield position


class Emitted(NamedTuple):
    """A vector function: what emits it, the types of its arguments, and its group."""

    emit: Callable[..., None]
    arguments: tuple[types.Type, ...]
    group: str


EMITTED: dict[str, Emitted] = {}
"""Every vector function by its symbol."""


def emitted_in(group: str) -> dict[str, Emitted]:
    """Return the vector functions of a group, in an order that does not hang on what was imported first."""
    return {symbol: EMITTED[symbol] for symbol in sorted(EMITTED) if EMITTED[symbol].group == group}


def native(
    *arguments: types.Type, group: str = EVERY_WAY
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function that emits code into something that Numba code can call with these argument types.

    The decorated function gets a builder and one value an argument. What it writes becomes a function of its
    own, so that its registers are its own too. Callers refer to it by its symbol: Numba optimises what a
    function calls anew with each of its callers, which made compiling half as long again as it is.
    """

    def wrap(emit: Callable[..., None]) -> Callable[..., None]:
        symbol = f"headwise_{emit.__name__}"
        EMITTED[symbol] = Emitted(emit, arguments, group)

        def typing(_context: Any, *_given: types.Type) -> tuple[Any, Any]:
            return types.void(*arguments), lower

        def lower(context: Any, builder: ir.IRBuilder, _signature: Any, values: Any) -> Any:
            kind = ir.FunctionType(ir.VoidType(), [context.get_value_type(given) for given in arguments])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, symbol), list(values))
            return context.get_dummy_value()

        names = ["context", *(f"argument_{place}" for place in range(len(arguments)))]
        typing.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # Numba reads the arity here
            [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        )
        typing.__name__ = emit.__name__
        return intrinsic(typing)

    return wrap


def _write_addresses(_context: Any, table: types.CPointer, group: types.IntegerLiteral) -> tuple[Any, Any]:
    """Write the addresses of a group's vector functions, as `emitted_in` has them; here they are emitted.

    The group is its place in `GROUPS`, a constant.
    """

    def lower(context: Any, builder: ir.IRBuilder, _signature: Any, values: Any) -> Any:
        for place, emitted in enumerate(emitted_in(GROUPS[group.literal_value]).values()):
            kinds = [context.get_value_type(argument) for argument in emitted.arguments]
            address = builder.ptrtoint(function_of(builder.module, emitted.emit, kinds), INT64)
            builder.store(address, builder.gep(values[0], [integer(place)]))
        return context.get_dummy_value()

    return types.void(table, group), lower


write_addresses: Callable[..., Any] = numba.extending.intrinsic(prefer_literal=True)(_write_addresses)


def function_of(module: ir.Module, emit: Callable[..., None], kinds: list[ir.Type]) -> ir.Function:
    """Return the function that `emit` writes, written into the module if it is not there yet."""
    kind = ir.FunctionType(ir.VoidType(), kinds)
    function = cgutils.get_or_insert_function(module, kind, f"headwise_emitted_{emit.__name__}")
    if not function.blocks:
        function.linkage = "internal"
        function.attributes.add("noinline")
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        emit(builder, *function.args)
        builder.ret_void()
    return function
