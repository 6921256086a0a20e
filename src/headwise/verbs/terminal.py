"""What every verb's terminal output shares: text of others made safe to print, and numbers made readable."""

from __future__ import annotations

_BINARY_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_DECIMAL_UNITS = ("k", "M", "G", "T", "P", "E")


def printable(text: str) -> str:
    r"""Return `text` with everything that could steer a terminal written as an escape.

    Control characters, invisible formatting (a right-to-left override, say), unusual spaces, line breaks and
    halves of surrogate pairs become `\x1b`, `\u202e` and the like. A backslash in the text stays as it is.

    Example:
        >>> print(printable("red \x1b[31malert\n"))
        red \x1b[31malert\n

    """
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text
    )


def several(count: int, noun: str) -> str:
    """Return a count with its noun.

    Example:
        >>> several(1, "token"), several(3, "token")
        ('1 token', '3 tokens')

    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def binary_size(size: int) -> str:
    """Return a number of bytes in KiB, MiB and so on with three digits, or in bytes below 1 KiB.

    Example:
        >>> binary_size(1_073_741_824), binary_size(23_040), binary_size(512)
        ('1.00 GiB', '22.5 KiB', '512 B')

    """
    return _scaled(size, 1024, _BINARY_UNITS) or f"{size} B"


def decimal_size(number: int) -> str:
    """Return a count in thousands (k), millions (M) and so on with three digits, or as it is below 1,000.

    Example:
        >>> decimal_size(8_388_608), decimal_size(999_999), decimal_size(512)
        ('8.39 M', '1.00 M', '512')

    """
    return _scaled(number, 1000, _DECIMAL_UNITS) or str(number)


def _scaled(number: int, step: int, units: tuple[str, ...]) -> str:
    scaled: float = number
    shown = ""
    for unit in units:
        if scaled < step and float(_three_digits(scaled)) < step:
            break
        scaled /= step
        shown = f"{_three_digits(scaled)} {unit}"
    return shown


def _three_digits(number: float) -> str:
    places = next((places for places in (2, 1) if round(number, places) < 10 ** (3 - places)), 0)
    return f"{number:.{places}f}"
