"""2 to the power of x, and tanh, on vectors."""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils

from headwise.kernels.emission import INT32, Lanes, vector

# Minimax in relative error for 2^f on [-1/2, 1/2] with the constant term held at 1, by iteratively reweighted
# least squares; 0.02 ulp of its own, 0.93 ulp with the rounding of every step (tests/kernels measures it).
_POWERS = (
    0.6931472028550449, 0.24022647913631867, 0.055503324711589336, 0.009618437357467669,
    0.0013398874403627561, 0.0001535336193827191,
)  # fmt: skip
LOG2_E = 1.4426950408889634
_ROUNDER = 12582912.0  # 1.5 * 2^23: adding it rounds to an integer, which then stands in the lowest bits
_LOWEST = -126.0  # below it 2^x is no normal number and taken as 0: it is lost beside the largest weight, 1


def exp2(lanes: Lanes, power: ir.Value) -> ir.Value:
    """Return 2^power for powers up to 127; 0 below -126, also for -inf; NaN for NaN."""
    return _exp2_by_scaling(lanes, power) if lanes.lanes == 16 else _exp2_by_bits(lanes, power)


def _exp2_by_scaling(lanes: Lanes, power: ir.Value) -> ir.Value:
    """Round and scale by the instructions that AVX-512 has for it, 0 where the mask leaves a lane out."""
    builder = lanes.builder
    whole = _called(lanes, "llvm.roundeven.v16f32", power)
    found = _two_to_the_fraction(lanes, builder.fsub(power, whole))
    name, bits = "llvm.x86.avx512.mask.scalef.ps.512", ir.IntType(16)
    kind = ir.FunctionType(lanes.type, [lanes.type, lanes.type, lanes.type, bits, INT32])
    scale = cgutils.get_or_insert_function(builder.module, kind, name)
    high_enough = builder.fcmp_unordered(">=", power, lanes.constant(_LOWEST))
    current_rounding = ir.Constant(INT32, 4)
    kept = builder.bitcast(high_enough, bits)
    return builder.call(scale, [found, whole, lanes.constant(0.0), kept, current_rounding])


def _called(lanes: Lanes, name: str, value: ir.Value) -> ir.Value:
    kind = ir.FunctionType(lanes.type, [lanes.type])
    return lanes.builder.call(cgutils.get_or_insert_function(lanes.builder.module, kind, name), [value])


def _exp2_by_bits(lanes: Lanes, power: ir.Value) -> ir.Value:
    builder = lanes.builder
    shifted = builder.fadd(power, lanes.constant(_ROUNDER))
    fraction = builder.fsub(power, builder.fsub(shifted, lanes.constant(_ROUNDER)))
    bits = builder.bitcast(shifted, vector(lanes.lanes, INT32))
    exponent = builder.shl(bits, _whole(lanes, 23))
    scale = builder.bitcast(builder.add(exponent, _whole(lanes, 127 << 23)), lanes.type)
    # A product, not a sum of exponents: NaN has to stay NaN.
    product = builder.fmul(_two_to_the_fraction(lanes, fraction), scale)
    too_low = builder.fcmp_ordered("<", power, lanes.constant(_LOWEST))
    return builder.select(too_low, lanes.constant(0.0), product)


def _two_to_the_fraction(lanes: Lanes, fraction: ir.Value) -> ir.Value:
    found = lanes.constant(_POWERS[-1])
    for coefficient in (*_POWERS[-2::-1], 1.0):
        found = lanes.fma(found, fraction, lanes.constant(coefficient))
    return found


def _whole(lanes: Lanes, number: int) -> ir.Constant:
    return ir.Constant(vector(lanes.lanes, INT32), [number] * lanes.lanes)


# tanh(x) = x + x^3 * polynomial(x^2) up to here, fitted the same way, 0.07 ulp of its own.
_SMALL = 0.625
_ODD = (
    -0.3333328194202178, 0.1333144219849077, -0.05373971511622107,
    0.020639087355347235, -0.005704987127390385,
)  # fmt: skip


def tanh(lanes: Lanes, x: ir.Value) -> ir.Value:
    """Return the hyperbolic tangent; NaN for NaN."""
    builder = lanes.builder
    square = builder.fmul(x, x)
    found = lanes.constant(_ODD[-1])
    for coefficient in _ODD[-2::-1]:
        found = lanes.fma(found, square, lanes.constant(coefficient))
    small = lanes.fma(found, builder.fmul(square, x), x)
    size = builder.select(builder.fcmp_ordered("<", x, lanes.constant(0.0)), builder.fneg(x), x)
    # Beyond 20 the result is 1 in float32; the comparison is so put that NaN stays.
    held = builder.select(builder.fcmp_ordered(">", size, lanes.constant(20.0)), lanes.constant(20.0), size)
    grown = exp2(lanes, builder.fmul(held, lanes.constant(2 * LOG2_E)))
    rest = builder.fdiv(lanes.constant(2.0), builder.fadd(grown, lanes.constant(1.0)))
    large = builder.fsub(lanes.constant(1.0), rest)
    signed = builder.select(builder.fcmp_ordered("<", x, lanes.constant(0.0)), builder.fneg(large), large)
    return builder.select(builder.fcmp_ordered("<", size, lanes.constant(_SMALL)), small, signed)
