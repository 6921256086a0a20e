import unicodedata

import pytest

from headwise.verbs.terminal import binary_size, decimal_size, printable


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("\x1b[2J\x07", r"\x1b[2J\x07"),
        ("two\nlines\r\t", r"two\nlines\r\t"),
        ("\x9b31m\x7f", r"\x9b31m\x7f"),
        ("\u202ereversed", r"\u202ereversed"),
        ("\u2028\u00a0", r"\u2028\xa0"),
        ("half \udce9", r"half \udce9"),
        ("plain [red]text[/red] \\ 日本 é", "plain [red]text[/red] \\ 日本 é"),
    ],
)
def test_what_could_steer_a_terminal_is_escaped(given: str, shown: str) -> None:
    assert printable(given) == shown


def test_no_control_format_or_surrogate_character_survives() -> None:
    everything = "".join(map(chr, range(0x11000)))
    left = {unicodedata.category(letter) for letter in printable(everything)}
    assert not left & {"Cc", "Cf", "Cs", "Zl", "Zp"}


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (10_239, "10.0 KiB"),
        (1024**2 - 1, "1.00 MiB"),
        (1_073_741_824, "1.00 GiB"),
        (1000 * 1024**3, "1000 GiB"),
        (3 * 1024**7, "3072 EiB"),
    ],
)
def test_bytes_in_binary_units(size: int, shown: str) -> None:
    assert binary_size(size) == shown


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (999, "999"),
        (1000, "1.00 k"),
        (9_996, "10.0 k"),
        (99_950, "100 k"),
        (999_999, "1.00 M"),
        (10**21, "1000 E"),
    ],
)
def test_counts_in_decimal_units(number: int, shown: str) -> None:
    assert decimal_size(number) == shown
