"""Counts that a user gives: what a valid one is, and which others would do."""

from __future__ import annotations

from math import isqrt
from operator import index

from headwise.errors import ArgumentError

# The largest count a 32-bit index holds. Nothing real comes near it; a slip of the keyboard does.
LARGEST_SIZE = 2**31 - 1


def checked_size(name: str, size: int, *, at_least: int = 1, largest: int | None = LARGEST_SIZE) -> int:
    """Return `size` as a plain integer from `at_least` to `largest` (None: no end), or refuse it.

    Raises:
        ArgumentError: `size` is not an integer (a bool or a float is none), or out of range.

    Example:
        >>> checked_size("layers", 30)
        30

    """
    size = _plain_integer(name, size)
    if size < at_least:
        raise ArgumentError(f"{name}={_shown(size)} must be at least {at_least}")
    if largest is not None and size > largest:
        raise ArgumentError(f"{name}={_shown(size)} is too large; the largest allowed is {largest}")
    return size


def checked_index(name: str, position: int, count: int) -> int:
    """Return `position` as a plain integer from 0 to `count - 1`, or refuse it.

    Raises:
        ArgumentError: `position` is not an integer, or there is no such position.

    Example:
        >>> checked_index("layer", 29, 30)
        29

    """
    position = _plain_integer(name, position)
    if not 0 <= position < count:
        there_is = f"0 to {count - 1}" if count > 1 else "only 0"
        raise ArgumentError(f"{name}={_shown(position)} does not exist; there is {there_is}")
    return position


def divisors(number: int) -> list[int]:
    """Return the divisors of `number` from 1 upwards."""
    small = [factor for factor in range(1, isqrt(number) + 1) if number % factor == 0]
    large = [number // factor for factor in reversed(small) if factor * factor != number]
    return small + large


def either(choices: list[int] | list[str]) -> str:
    """Return the choices as a person lists them: "1, 2 or 4"."""
    *most, last = map(str, choices)
    return f"{', '.join(most)} or {last}" if most else last


def _plain_integer(name: str, number: int) -> int:
    try:
        # An index, so that NumPy's integers pass; True would pass as 1.
        plain = None if isinstance(number, bool) else index(number)
    except TypeError:
        plain = None
    if plain is None:
        raise ArgumentError(f"{name}={number!r} is a {type(number).__name__}; pass an integer")
    return plain


def _shown(number: int) -> str:
    # Python refuses to print integers of more than 4,300 digits.
    return str(number) if number.bit_length() <= 256 else f"(a number of {number.bit_length()} bits)"
