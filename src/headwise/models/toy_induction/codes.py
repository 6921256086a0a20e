"""Codes of 32 signs for tokens: of equal length, and any two of them nearly at right angles.

The code of a pair (a, b) of elements of the field GF(32) has at each element x of the field the sign
(-1)^Tr(a x + b x^3). The cube is an almost bent function over this field, so two codes have an inner product
of -8, 0 or 8, where a code has 32 with itself (R. Gold, 1968).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CODE_LENGTH = 32
MAX_CODES = CODE_LENGTH**2
MAX_OVERLAP = 8
"""The largest inner product of two different codes; a code's product with itself is `CODE_LENGTH`."""

_FIELD_POLYNOMIAL = 0b100101
"""x^5 + x^2 + 1, which no polynomial of lower degree over GF(2) divides."""


def sign_codes() -> NDArray[np.float32]:
    """Return all codes, `[MAX_CODES, CODE_LENGTH]`, each entry 1 or -1."""
    field = range(CODE_LENGTH)
    cubes = [_product(x, _product(x, x)) for x in field]
    # [a, x] and [b, x]
    linear = np.array([[_trace(_product(a, x)) for x in field] for a in field])
    cubic = np.array([[_trace(_product(b, cube)) for cube in cubes] for b in field])
    # [b, 1, x] and [1, a, x] -> [b x a, x]
    exponents = (cubic[:, None, :] ^ linear[None, :, :]).reshape(MAX_CODES, CODE_LENGTH)
    return (1 - 2 * exponents).astype(np.float32)


def _product(first: int, second: int) -> int:
    """Multiply two elements of GF(32), written as polynomials whose coefficients are the bits."""
    result = 0
    while second:
        if second & 1:
            result ^= first
        second >>= 1
        first <<= 1
        if first & CODE_LENGTH:
            first ^= _FIELD_POLYNOMIAL
    return result


def _trace(element: int) -> int:
    """Return x + x^2 + x^4 + x^8 + x^16, which is 0 or 1 for every element."""
    total = 0
    for _ in range(CODE_LENGTH.bit_length() - 1):
        total ^= element
        element = _product(element, element)
    return total
