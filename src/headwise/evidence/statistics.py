"""The numbers that every row of attention weights has, by name; `headwise.evidence` has the formulas."""

from __future__ import annotations

from dataclasses import dataclass


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
"""The statistics that tables show, in their order."""

OTHER_STATISTICS: tuple[Statistic, ...] = (
    Statistic(
        "normalised_entropy",
        "normalised_entropy",
        "normalised entropy",
        "share",
        "entropy divided by the log of the number of visible keys; 0 for one visible key",
    ),
    Statistic(
        "largest_weight",
        "largest_weight",
        "largest weight",
        "mass",
        "the largest weight on one visible token",
    ),
    Statistic(
        "local", "local", "local", "mass", "weight on the tokens within a window around the query, itself too"
    ),
    Statistic("sink", "sink", "sink", "mass", "what a learned sink took; only in layers that have one"),
)
"""The statistics that are collected with those of `STATISTICS` and left out of tables."""
