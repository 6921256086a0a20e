"""Philox 4x32-10 once more, in Python's whole numbers and straight from the paper's definition."""

from __future__ import annotations

from collections.abc import Sequence

_WORD = 2**32


def philox(counter: Sequence[int], key: Sequence[int]) -> list[int]:
    """Return the four words of a counter."""
    left, right = list(counter[:2]), list(counter[2:])  # (R0, L0) and (R1, L1) of the paper
    for turn in range(10):
        first = divmod(left[0] * 0xD2511F53, _WORD)
        second = divmod(right[0] * 0xCD9E8D57, _WORD)
        keys = (key[0] + turn * 0x9E3779B9) % _WORD, (key[1] + turn * 0xBB67AE85) % _WORD
        left = [second[0] ^ left[1] ^ keys[0], second[1]]
        right = [first[0] ^ right[1] ^ keys[1], first[1]]
    return left + right


def word_of(seed: int, *, head: int, query: int, key: int) -> int:
    """Return the word that decides on one weight; head counts through the batch."""
    return philox((key // 4 % _WORD, query, head, 0), (seed % _WORD, seed // _WORD % _WORD))[key % 4]


KNOWN = [
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([_WORD - 1] * 4, [_WORD - 1] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]
"""The answers published with Random123, the authors' own library: counter, key, words."""
