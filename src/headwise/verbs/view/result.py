"""What `view` found: frozen values that the renderers show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from headwise.evidence import STATISTICS, Statistic
from headwise.models.attachment import Unseen
from headwise.models.head_scores import HeadScores
from headwise.models.tokens import Token

Float32 = NDArray[np.float32]
Part = Literal["encoder", "decoder", "cross"]
"""Which attention of an encoder-decoder: the encoder's own, the decoder's own, or the decoder's over what the
encoder read."""


@dataclass(frozen=True)
class ModelFacts:
    """What the model is; `kv_bytes_per_token` is for a cache of 2-byte elements and 0 without a cache."""

    name: str
    family: str
    layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    kv_bytes_per_token: int
    causal: bool


@dataclass(frozen=True)
class NextToken:
    """One of the likeliest next tokens."""

    token: str
    probability: float


@dataclass(frozen=True)
class HeadSummary:
    """One number per statistic for one query head: the mean over the rows that have one, None if none has."""

    layer: int
    head: int
    kv_head: int
    entropy: float | None
    first_token: float | None
    previous_token: float | None
    self_token: float | None
    mean_distance: float | None


@dataclass(frozen=True)
class LayerMaps:
    """What was recorded of one layer.

    - thumbnails `[num_heads, t, t]`, t = min(64, seq_len): rows pooled so that they still sum to one
    - top_weights, top_keys `[num_heads, seq_len, k]`, largest first
    - rows: statistic name -> `[num_heads, seq_len]`, exact
    - weights `[num_heads, seq_len, seq_len]`, or None where the text is too long to keep them
    - sink `[num_heads, seq_len]`: the mass a learned sink took, or None where the layer has none
    - exact_weights `[num_heads, rows, kv_len]`: the rows of `View.exact_rows`, or None where there are none
    - name: the path of the layer's module in the model

    In cross attention seq_len counts the tokens that ask and kv_len those that are asked, thumbnails are
    `[num_heads, r, c]` and weights `[num_heads, seq_len, kv_len]`. A layer looked at closely may have larger
    thumbnails than the others.
    """

    layer: int
    num_heads: int
    num_kv_heads: int
    thumbnails: Float32
    top_weights: Float32
    top_keys: NDArray[np.int64]
    rows: dict[str, Float32]
    weights: Float32 | None
    sink: Float32 | None
    exact_weights: Float32 | None = None
    name: str = ""


@dataclass(frozen=True)
class StandOut:
    """A head at the end of the range of one statistic, beside the median of all heads."""

    summary: HeadSummary
    statistic: Statistic
    highest: bool
    value: float
    median: float


@dataclass(frozen=True)
class View:
    """Everything `view` found on one text.

    - key_tokens: what the tokens look at where that is another text (cross attention), else None
    - image_grid: rows and columns of an image's patches, or None. They are the last of the tokens that are
      looked at, row by row; what stands before them, a class token for example, is no part of the image.
    - exact_rows: the queries whose weights were asked for, ascending; see `LayerMaps.exact_weights`
    - part: of an encoder-decoder the attention that is shown, else None
    - unseen: modules that mix tokens, or may, and are not recorded
    - head_scores: how much each head does of one known thing, on random tokens, or None where not asked for
    """

    facts: ModelFacts
    text: str
    tokens: tuple[Token, ...]
    next_tokens: tuple[NextToken, ...]
    heads: tuple[HeadSummary, ...]
    layers: tuple[LayerMaps, ...]
    max_logit_difference: float
    focus_layer: int | None = None
    key_tokens: tuple[Token, ...] | None = None
    image_grid: tuple[int, int] | None = None
    exact_rows: tuple[int, ...] = ()
    part: Part | None = None
    unseen: tuple[Unseen, ...] = ()
    head_scores: HeadScores | None = None

    def heads_of(self, layer: int) -> tuple[HeadSummary, ...]:
        """Return the heads of one layer."""
        return tuple(summary for summary in self.heads if summary.layer == layer)

    def median(self, statistic: Statistic) -> float | None:
        """Return the median of a statistic over the heads that have it, None if none has."""
        known = [value for head in self.heads if (value := getattr(head, statistic.name)) is not None]
        return float(np.median(known)) if known else None

    def stand_outs(self, each: int = 2) -> tuple[StandOut, ...]:
        """Return the `each` heads at either end of entropy and at the top of every other statistic.

        A head that measures no more (or no less) than the median stands out by nothing and is left out.
        """
        found: list[StandOut] = []
        for statistic in STATISTICS:
            median = self.median(statistic)
            if median is None:
                continue
            measured = [
                StandOut(head, statistic, value > median, value, median)
                for head in self.heads
                if (value := getattr(head, statistic.name)) is not None and value != median
            ]
            ranked = sorted(measured, key=lambda stand_out: stand_out.value)
            found += [stand_out for stand_out in ranked[::-1][:each] if stand_out.highest]
            if statistic.name == "entropy":
                found += [stand_out for stand_out in ranked[:each] if not stand_out.highest]
        return tuple(found)


@dataclass(frozen=True)
class Comparison:
    """Two views beside each other: of two texts, or by two models."""

    first: View
    second: View
