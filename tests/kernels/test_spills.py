"""No sum of the micro-kernel passes by memory while it grows, on any processor it is made for.

LLVM makes assembly for other processors than this one, and for other architectures. Where its build
lacks one, these tests fail and say so.
"""

from dataclasses import replace
from functools import cache

import pytest

from headwise.kernels.compiled import source_hash
from headwise.kernels.entry import compile_vector_code
from headwise.kernels.geometry import GEOMETRIES, PANEL
from headwise.kernels.host import GEOMETRY
from headwise.kernels.ways import BACKWARD, EVERY_WAY

from .emitted import TARGETS, Target, column_assembly, strip_assembly
from .inner_loops import calls_in, function_in, loops_of

TOO_MANY_ROWS = {"avx2": 7, "avx512": 31, "neon": 7}
"""One row more than the 16, 32 and 32 registers hold."""
TOO_MANY_COLUMNS = {"avx2": 8, "avx512": 32, "neon": 8}

EVERY_STRIP = [
    pytest.param(target, rows, id=f"{target.cpu}-{rows}")
    for target in TARGETS
    for rows in GEOMETRIES[target.geometry].strips
]


def assert_sums_stay_in_registers(assembly: str, rows: int, lanes: int) -> None:
    """Each loop makes whole steps of the depth, the first two or more at a time, and none spills a vector."""
    loops, step = loops_of(assembly), rows * PANEL // lanes
    assert len(loops) >= 2, "the loop over pairs of steps, and the one over what is left"
    assert loops[0].fused >= 2 * step
    assert [loop.fused % step for loop in loops] == [0] * len(loops)
    assert [loop.spills for loop in loops] == [()] * len(loops)
    assert calls_in(assembly) == []


@pytest.mark.parametrize(("target", "rows"), EVERY_STRIP)
def test_sums_stay_in_registers(target: Target, rows: int) -> None:
    assert_sums_stay_in_registers(strip_assembly(target, rows), rows, GEOMETRIES[target.geometry].lanes)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.cpu)
def test_a_strip_that_is_too_large_is_caught(target: Target) -> None:
    assembly = strip_assembly(target, TOO_MANY_ROWS[target.geometry])
    assert any(loop.spills for loop in loops_of(assembly))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.cpu)
def test_sums_of_columns_stay_in_registers(target: Target) -> None:
    geometry = GEOMETRIES[target.geometry]
    assembly = column_assembly(target, geometry)
    assert_sums_stay_in_registers(assembly, geometry.column_strip, geometry.lanes)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.cpu)
def test_a_strip_of_too_many_columns_is_caught(target: Target) -> None:
    geometry = replace(GEOMETRIES[target.geometry], column_strip=TOO_MANY_COLUMNS[target.geometry])
    assert any(loop.spills for loop in loops_of(column_assembly(target, geometry)))


def test_every_geometry_is_looked_at() -> None:
    assert {target.geometry for target in TARGETS} == set(GEOMETRIES)


@cache
def assembly_of(group: str) -> str:
    """Return the vector functions of a group as they are compiled here."""
    (assembly,) = compile_vector_code(source_hash(), group, on_disk=False).inspect_asm().values()
    return assembly


def test_what_this_machine_runs_keeps_its_sums_in_registers() -> None:
    for rows in GEOMETRY.strips:
        strip = function_in(assembly_of(EVERY_WAY), f"headwise_emitted_strip_of_{rows}")
        assert_sums_stay_in_registers(strip, rows, GEOMETRY.lanes)
    columns = function_in(assembly_of(BACKWARD), "headwise_emitted_strip_of_columns")
    assert_sums_stay_in_registers(columns, GEOMETRY.column_strip, GEOMETRY.lanes)


X86_LOOP = """
{prologue}
.LBB0_1:
\tvmovups\t(%rsi), %ymm1
{line}
\tvfmadd231ps\t%ymm1, %ymm2, %ymm0
\taddq\t$2, %rax
\tcmpq\t%rcx, %rax
\tjl\t.LBB0_1
\tvmovups\t%ymm0, -64(%rsp)
\tretq
"""


@pytest.mark.parametrize(
    ("line", "prologue", "count"),
    [
        ("\tvmovups\t%ymm2, -32(%rsp)", "", 1),
        ("\tvfmadd231ps\t64(%rsp), %ymm2, %ymm3", "", 1),
        ("\tvmovaps\t%xmm2, -32(%rbp)", "\tmovq\t%rsp, %rbp", 1),
        ("\tvmovaps\t(%rbp), %ymm2", "", 0),  # a register like any other where no frame is kept
        ("\tmovq\t-8(%rsp), %rdx", "", 0),  # an address, not a sum
        ("\tvmovups\t(%rdx), %ymm2", "", 0),
    ],
)
def test_what_counts_as_a_spill(line: str, prologue: str, count: int) -> None:
    (loop,) = loops_of(X86_LOOP.format(line=line, prologue=prologue))
    assert len(loop.spills) == count
    assert loop.fused == 1 + ("vfmadd" in line)


def test_a_jump_back_that_does_not_return_is_no_loop() -> None:
    assembly = """
\tje\t.LBB0_2
.LBB0_1:
\tvmovups\t-64(%rsp), %ymm0
\tretq
.LBB0_2:
\tvfmadd231ps\t%ymm1, %ymm2, %ymm0
\tjmp\t.LBB0_1
"""
    assert loops_of(assembly) == []
