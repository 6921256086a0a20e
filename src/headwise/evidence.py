"""What to report about each head (`Collect`) and what was found (`Evidence`).

This module holds names and definitions only; `headwise.ops` computes them. One statistic has one
definition, here in `STATISTICS`, and every table, page and JSON document quotes it.

Definitions, for one row (one query) with weights w over its visible keys, key positions j, and the query's
own position p = i + (kv_len - seq_len), so that the last query stands at the last key:

- entropy: -sum w log w, in nats
- first_token: w at the first key that any row of that batch element sees
- previous_token: w at key p - 1, for rows where p >= 1 and that key is visible to the row
- self_token: w at key p, for rows where p >= 0
- mean_distance: sum w |p - j|, in tokens

A head's number is the mean over the rows that have one: rows that see no key have none, and rows before
the second visible key have no previous token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from headwise.counts import checked_size

Array = TypeVar("Array")


@dataclass(frozen=True)
class Statistic:
    """One number that a row of attention weights has.

    `name` is the attribute of `Evidence`, `key` the key in JSON documents, `label` what a person reads.
    """

    name: str
    key: str
    label: str
    unit: str
    definition: str


STATISTICS: tuple[Statistic, ...] = (
    Statistic(
        "entropy",
        "entropy",
        "entropy",
        "nats",
        "-sum of w log w over the visible keys; 0 when one key takes all",
    ),
    Statistic(
        "first_token",
        "first_token",
        "first token",
        "mass",
        "weight on the first visible token (the usual sink)",
    ),
    Statistic(
        "previous_token",
        "previous_token",
        "previous token",
        "mass",
        "weight on the token just before the query",
    ),
    Statistic("self_token", "self", "self", "mass", "weight on the query's own token"),
    Statistic(
        "mean_distance",
        "mean_distance",
        "mean distance",
        "tokens",
        "sum of w times the distance from query to key",
    ),
)
"""The statistics collected by default, in the order in which tables show them."""


@dataclass(frozen=True)
class Collect:
    """What to record about each head besides its output.

    The statistics of `STATISTICS` are always recorded. Everything else is asked for, since it costs memory.

    Args:
        weights: keep the exact weights, `[batch, num_heads, seq_len, kv_len]`; memory grows with
            seq_len x kv_len.
        map_size: keep a map of at most `map_size x map_size` cells per head, pooled so that each row still
            sums to what its rows summed to: the mean over a cell's rows of the mass on its keys.
        top_k: keep the `top_k` largest weights of each row and their keys.

    Raises:
        ArgumentError: `map_size` or `top_k` is not a positive integer.

    Example:
        >>> Collect(map_size=64, top_k=8)
        Collect(weights=False, map_size=64, top_k=8)

    """

    weights: bool = False
    map_size: int | None = None
    top_k: int | None = None

    def __post_init__(self) -> None:
        for name in ("map_size", "top_k"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, checked_size(name, getattr(self, name)))


@dataclass(frozen=True)
class Evidence(Generic[Array]):
    """What one attention call was seen to do, per head and row.

    The arrays are tensors of the calling framework. `[batch, num_heads, seq_len]` unless said:

    - entropy, first_token, previous_token, self_token, mean_distance: see the module's definitions; NaN where
      a row has no such number.
    - sink: mass that a learned sink took, or None where the layer has no sink.
    - visible: `[batch, seq_len]` or `[batch, num_heads, seq_len]` boolean, whether the row sees any key.
    - weights: `[batch, num_heads, seq_len, kv_len]`, or None.
    - map: `[batch, num_heads, rows, columns]`, rows and columns at most `map_size`, or None; rows that
      see no key are left out of a cell's mean, and a cell of nothing else is 0.
    - top_weights, top_keys: `[batch, num_heads, seq_len, top_k]` largest first, or None; at most kv_len of
      them, and past the keys that a row sees the weight is 0 and the key -1.
    """

    entropy: Array
    first_token: Array
    previous_token: Array
    self_token: Array
    mean_distance: Array
    visible: Array
    sink: Array | None = None
    weights: Array | None = None
    map: Array | None = None
    top_weights: Array | None = None
    top_keys: Array | None = None
