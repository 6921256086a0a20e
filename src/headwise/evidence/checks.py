"""What `Collect` refuses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headwise.counts import LARGEST_SIZE, checked_index, checked_size
from headwise.errors import ArgumentError


def check_switch(name: str, given: object) -> None:
    """Refuse what is not True or False.

    Raises:
        ArgumentError: it is not.

    """
    if not isinstance(given, bool):
        raise ArgumentError(f"{name}={given!r} is a {type(given).__name__}; pass True or False")


def checked_offsets(given: Any) -> tuple[int, ...]:
    """Return distances back from the query, each once.

    Raises:
        ArgumentError: one is not an integer of at least 0, or is there twice.

    """
    offsets = tuple(_integer(f"offsets[{place}]", each) for place, each in enumerate(_list("offsets", given)))
    for place, offset in enumerate(offsets):
        if offset < 0:
            raise ArgumentError(
                f"offsets[{place}]={offset} must be at least 0, for it counts back from the query's own key: "
                "1 is the key before"
            )
    _refuse_repeats("offsets", offsets)
    return offsets


def checked_rows(given: Any) -> tuple[int, ...]:
    """Return rows as they were given, each once.

    Raises:
        ArgumentError: one is not an integer, or is there twice.

    """
    rows = tuple(_integer(f"rows[{place}]", each) for place, each in enumerate(_list("rows", given)))
    _refuse_repeats("rows", rows)
    return rows


def checked_heads(given: Any) -> tuple[int, ...]:
    """Return heads, at least one and each once.

    Raises:
        ArgumentError: there is none, one is not an integer of at least 0, or is there twice.

    """
    heads = tuple(
        checked_size(f"heads[{place}]", each, at_least=0) for place, each in enumerate(_list("heads", given))
    )
    if not heads:
        raise ArgumentError(
            "heads has no head in it, so nothing would be reported; leave it out for all heads"
        )
    _refuse_repeats("heads", heads)
    return heads


def checked_pairs(given: Any) -> tuple[tuple[int, int], ...]:
    """Return pairs of two different heads, each once, whichever of the two comes first.

    Raises:
        ArgumentError: one is no such pair, or is there twice.

    """
    pairs: list[tuple[int, int]] = []
    for place, each in enumerate(_list("pairs", given)):
        name = f"pairs[{place}]"
        heads = tuple(checked_size(name, head, at_least=0) for head in _list(name, each))
        if len(heads) != 2 or heads[0] == heads[1]:
            raise ArgumentError(f"{name}={heads} must be two different query heads, such as (0, 1)")
        pairs.append((heads[0], heads[1]))
    _refuse_repeats("pairs", [tuple(sorted(pair)) for pair in pairs])
    return tuple(pairs)


def check_heads_exist(name: str, heads: Sequence[int], num_heads: int) -> None:
    """Refuse heads that a layer of `num_heads` query heads does not have.

    Raises:
        ArgumentError: it does not have one of them.

    """
    for place, head in enumerate(heads):
        checked_index(f"{name}[{place}]", head, num_heads)


def counted_rows(rows: Sequence[int], seq_len: int) -> tuple[int, ...]:
    """Return `rows`, of which the negative ones count from the end of `seq_len`, counted from the first.

    Raises:
        ArgumentError: there is no such row, or two of them are the same one.

    """
    for place, row in enumerate(rows):
        if not -seq_len <= row < seq_len:
            there_is = f"0 to {seq_len - 1}, or -{seq_len} to -1 from the end" if seq_len else "none"
            raise ArgumentError(
                f"rows[{place}]={row} does not exist; of {seq_len} query rows there is {there_is}"
            )
    counted = tuple(row % seq_len for row in rows)
    _refuse_repeats("rows", counted)
    return counted


def _list(name: str, given: Any) -> list[Any]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise ArgumentError(
            f"{name}={given!r} is a {type(given).__name__}; pass a list, such as {name}=[{given!r}]"
        )
    return list(given)


def _integer(name: str, given: Any) -> int:
    return checked_size(name, given, at_least=-LARGEST_SIZE)


def _refuse_repeats(name: str, items: Sequence[object]) -> None:
    for place, item in enumerate(items):
        first = items.index(item)
        if first != place:
            raise ArgumentError(f"{name}[{first}] and {name}[{place}] are both {item}; name each once")
