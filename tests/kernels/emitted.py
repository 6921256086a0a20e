"""Vector code by itself: compiled for this processor and called, or as assembly for any other."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba.core.codegen import CPUCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numpy.typing import NDArray

from headwise.kernels import attend  # noqa: F401 - so that all of EMITTED is there
from headwise.kernels.emission import EMITTED, FLOAT, INT64, Lanes, counting, function_of, integer
from headwise.kernels.geometry import GEOMETRIES, Geometry
from headwise.kernels.host import GEOMETRY
from headwise.kernels.products import column_emitter, strip_emitter

STRIP_KINDS = [INT64, *(FLOAT.as_pointer(), INT64) * 4]
"""ending, rows and stride, panel and stride, sums and stride, factors, depth."""
COLUMN_KINDS = [*(FLOAT.as_pointer(), INT64) * 3, INT64]
"""columns and stride, panel and stride, sums and stride, depth."""


@dataclass(frozen=True)
class Target:
    """A processor, and the geometry that the kernel has on it."""

    geometry: str
    triple: str
    cpu: str

    def machine(self) -> binding.TargetMachine:
        binding.initialize_all_targets()
        binding.initialize_all_asmprinters()
        model = "jitdefault" if self.triple.startswith("x86") else "default"
        return binding.Target.from_triple(self.triple).create_target_machine(
            cpu=self.cpu, features="", opt=3, reloc="static", codemodel=model, jit=True
        )


X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
TARGETS = (
    Target("avx2", X86, "x86-64-v3"),
    Target("avx2", X86, "znver3"),
    Target("avx512", X86, "x86-64-v4"),
    Target("avx512", X86, "znver4"),
    Target("neon", ARM, "neoverse-n1"),
    Target("neon", ARM, "apple-m1"),
)


def strip_assembly(target: Target, rows: int) -> str:
    """Return the micro-kernel for a strip of `rows` rows as assembly."""
    return _assembly(target, strip_emitter(GEOMETRIES[target.geometry], rows), STRIP_KINDS)


def column_assembly(target: Target, geometry: Geometry) -> str:
    """Return the micro-kernel for a strip of columns as assembly."""
    return _assembly(target, column_emitter(geometry), COLUMN_KINDS)


def _assembly(target: Target, emit: Callable[..., None], kinds: list[ir.Type]) -> str:
    """Return what `emit` writes as assembly, optimised the way Numba does it."""
    machine = target.machine()
    module = ir.Module("strip")
    module.triple, module.data_layout = target.triple, str(machine.target_data)
    function_of(module, emit, kinds).linkage = "external"
    parsed = binding.parse_assembly(str(module))
    parsed.verify()
    for level in (0, 3):
        options = binding.create_pipeline_tuning_options(level)
        options.loop_vectorization = options.slp_vectorization = level > 0
        builder = binding.create_pass_builder(machine, options)
        passes = builder.getModulePassManager()
        if level == 0:
            passes.add_loop_rotate_pass()
            passes.add_instruction_combine_pass()
            passes.add_jump_threading_pass()
        passes.run(parsed, builder)
    return machine.emit_assembly(parsed)


@cache
@global_compiler_lock
def _library(emit: Callable[..., None], kinds: tuple[ir.Type, ...]) -> tuple[CPUCodeLibrary, str]:
    """Return what `emit` writes, compiled by Numba's own steps for this processor, and its symbol."""
    library = cpu_target.target_context.codegen().create_library(f"test_{emit.__name__}")
    module = library.create_ir_module(f"test_{emit.__name__}")
    function = function_of(module, emit, list(kinds))
    function.linkage = "external"
    library.add_ir_module(module)
    library.finalize()
    return library, function.name


def assembly_here(emit: Callable[..., None], kinds: tuple[ir.Type, ...]) -> str:
    """Return what `emit` writes as assembly for this processor."""
    library, _ = _library(emit, kinds)
    return library.get_asm_str()


@cache
def compiled(emit: Callable[..., None], kinds: tuple[ir.Type, ...]) -> Callable[..., None]:
    """Return what `emit` writes as a function of Python.

    Arrays are passed as the addresses of their first elements, integers and floats as they are.
    """
    library, symbol = _library(emit, kinds)
    native = {INT64: ctypes.c_int64, FLOAT: ctypes.c_float}
    pointer = library.get_pointer_to_function(symbol)
    call = ctypes.CFUNCTYPE(None, *(native.get(kind, ctypes.c_void_p) for kind in kinds))(pointer)

    def run(*given: Any) -> None:
        call(*(each.ctypes.data if isinstance(each, np.ndarray) else each for each in given))

    return run


def native(symbol: str) -> Callable[..., None]:
    """Return the vector function that compiled code knows by this symbol."""
    emit, arguments, _ = EMITTED[symbol]
    context = cpu_target.target_context
    return compiled(emit, tuple(context.get_value_type(argument) for argument in arguments))


def strip(rows: int) -> Callable[..., None]:
    """Return the micro-kernel for a strip of `rows` rows on this processor."""
    return compiled(_strip_emitter(rows), tuple(STRIP_KINDS))


@cache
def _strip_emitter(rows: int) -> Callable[..., None]:
    return strip_emitter(GEOMETRY, rows)


def elementwise(
    function: Callable[[Lanes, ir.Value], ir.Value],
    numbers: NDArray[np.float32],
    *,
    width: int = GEOMETRY.lanes,
) -> NDArray[Any]:
    """Return what an emitted function of one vector makes of `numbers`, whole vectors of `width`."""
    assert numbers.size % width == 0
    emit, kind = _over_an_array(function, width)
    result = np.full(numbers.size + 1, 77, dtype={"float": np.float32}.get(str(kind), np.int16))
    call = compiled(emit, (INT64, FLOAT.as_pointer(), kind.as_pointer()))
    call(numbers.size, np.ascontiguousarray(numbers), result)
    assert result[-1] == 77, "written past the end"
    return result[:-1]


@cache
def _over_an_array(
    function: Callable[[Lanes, ir.Value], ir.Value], width: int
) -> tuple[Callable[..., None], ir.Type]:
    """Return what emits the loop over an array, and the element type of its results."""

    def emit(builder: ir.IRBuilder, count: ir.Value, source: ir.Value, target: ir.Value) -> None:
        lanes = Lanes(builder, width)
        with counting(builder, integer(0), count, width) as place:
            lanes.store(function(lanes, lanes.load(source, place)), target, place)

    emit.__name__ = f"all_{function.__name__}_{width}"
    trial = ir.IRBuilder(ir.Function(ir.Module(), ir.FunctionType(FLOAT, []), "trial").append_basic_block())
    lanes = Lanes(trial, width)
    return emit, function(lanes, lanes.constant(0.0)).type.element
