"""`left * right + addend` in float32, rounded once, out of float64 arithmetic."""

import numpy as np
from numpy.typing import NDArray


def fma(
    left: NDArray[np.float32], right: NDArray[np.float32], addend: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return the sums, exactly as the instruction gives them.

    The product of two float32 numbers fits in float64. Where the sum does not, it is rounded to odd, so that
    the second rounding, to float32, sees on which side of a half it lies (Boldo and Melquiond 2008).
    """
    product = left.astype(np.float64) * right.astype(np.float64)
    wide = addend.astype(np.float64)
    total = product + wide
    back = total - product
    error = (product - (total - back)) + (wide - back)
    is_even = total.view(np.int64) & 1 == 0
    beside = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    return np.where((error != 0) & is_even, beside, total).astype(np.float32)
