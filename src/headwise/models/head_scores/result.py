"""What the scores of a model's heads are: frozen values that can be shown."""

from __future__ import annotations

from dataclasses import dataclass

from headwise.counts import checked_size
from headwise.errors import ArgumentError
from headwise.evidence import Statistic

SINK_ROWS = 64
SINK_THRESHOLD = 0.3

SCORES: tuple[Statistic, ...] = (
    Statistic(
        "previous_token", "previous_token", "previous token", "mass", "mean weight on the token just before"
    ),
    Statistic(
        "induction",
        "induction",
        "induction",
        "mass",
        "in repeated random tokens, mean weight on what followed the token's first occurrence",
    ),
    Statistic(
        "duplicate_token",
        "duplicate_token",
        "duplicate token",
        "mass",
        "in repeated random tokens, mean weight on the token's first occurrence",
    ),
    Statistic("sink", "sink", "sink", "mass", f"mean weight on the first token, over {SINK_ROWS} rows"),
)
"""The scores, in the order in which tables show them."""


@dataclass(frozen=True)
class HeadScore:
    """The scores of one query head, each from 0 to 1; `kv_head` is the KV head that it reads."""

    layer: int
    head: int
    kv_head: int
    previous_token: float
    induction: float
    duplicate_token: float
    sink: float


@dataclass(frozen=True)
class HeadScores:
    """The scores of every head of a model, and of what text they are.

    - model: its name
    - num_tokens: how many random tokens were drawn, and then repeated
    - batch: how many such texts
    - seed: of the draw
    - seq_len: the length of one text, special tokens included
    - sink_rows: over how many rows the sink score is a mean, `SINK_ROWS` or all of a shorter text
    - heads: one entry a head, by layer and head
    """

    model: str
    num_tokens: int
    batch: int
    seed: int
    seq_len: int
    sink_rows: int
    heads: tuple[HeadScore, ...]

    @property
    def sink_share(self) -> float:
        """The share of heads whose sink score exceeds `SINK_THRESHOLD`."""
        return sum(head.sink > SINK_THRESHOLD for head in self.heads) / len(self.heads)

    def strongest(self, score: str, *, count: int = 5) -> tuple[HeadScore, ...]:
        """Return the heads with the highest score, highest first; of equal ones the first in the model.

        Args:
            score: the name of one of `SCORES`.
            count: how many heads, or fewer where the model has fewer.

        Raises:
            ArgumentError: there is no such score, or `count` is no positive integer.

        Example:
            >>> low, high = HeadScore(0, 0, 0, 0.1, 0.3, 0.0, 0.2), HeadScore(0, 1, 0, 0.1, 0.9, 0.0, 0.2)
            >>> scores = HeadScores("a-model", 64, 4, 0, 129, 64, (low, high))
            >>> [head.induction for head in scores.strongest("induction")]
            [0.9, 0.3]

        """
        names = [known.name for known in SCORES]
        if score not in names:
            raise ArgumentError(f"score={score!r} is none of {', '.join(names)}")
        wanted = checked_size("count", count)
        return tuple(sorted(self.heads, key=lambda head: -getattr(head, score))[:wanted])
