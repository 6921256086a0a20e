"""Which seeds the examples take."""

from __future__ import annotations

from headwise.errors import ArgumentError

LARGEST_SEED = 2**32 - 1


def checked_seed(seed: int) -> int:
    """Return `seed` if it is one that every generator of NumPy takes.

    Raises:
        ArgumentError: it is not.

    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= LARGEST_SEED:
        raise ArgumentError(f"seed={seed!r} is no seed; pass an integer from 0 to {LARGEST_SEED}")
    return seed
