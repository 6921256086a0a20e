"""The knobs of the general attention computation: conventions, then faults, none turned by default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headwise.rope import Rope


class CannotComputeError(Exception):
    """A knob asks for what these sizes do not allow, such as the transpose of a matrix that is not square."""


@dataclass(frozen=True)
class Recipe:
    """One way to compute attention. With no knob turned it is the definition.

    Conventions:
        reading: which of the ways the subject's weights can be read.
        head_order: how a row's width holds its heads, in and out.
        rope: rotary positions of query and key.
        causal_behind_cache: whether new tokens see no later one where there is a cache, even if not causal.
        scale, softcap, causal, window: what it does without being asked; scale None is `head_dim ** -0.5`.
        alignment: of causal and window, where there are more keys than queries.
        window_sides: whether a window that is not causal reaches to both sides.
        mask_means, float_mask, padding_means: what the entries of a boolean mask, of a float mask and of a
            padding mask say; "other" leaves the answer open.
        empty: the weights where a softmax has no visible entry; "other" leaves them open.

    Faults, each by its knob; "right" or None is none: the rest.
    """

    reading: int = 0
    head_order: Literal["head major", "width major"] = "head major"
    rope: Rope | None = None
    scale: float | None = None
    softcap: float | None = None
    causal: bool = False
    causal_behind_cache: bool = False
    window: int | None = None
    window_sides: Literal["left", "both"] = "left"
    alignment: Literal["lower_right", "upper_left"] = "lower_right"
    mask_means: Literal["attend", "ignore", "add", "other"] = "attend"
    float_mask: Literal["add", "attend", "ignore", "other"] = "add"
    padding_means: Literal["ignore", "attend"] = "ignore"
    empty: Literal["zero", "nan", "mean", "other"] = "zero"

    # From rows to heads
    batch_mixed: bool = False
    heads_mixed: bool = False
    projections_swapped: Literal["query key", "key value"] | None = None
    tensors_swapped: Literal["query key", "key value"] | None = None
    projection_biases: Literal["right", "ignored", "ignored in", "ignored out"] = "right"
    split: Literal["right", "view", "width major", "fused view", "fused head view"] = "right"
    shared_head: Literal["query key value", "query", "query key"] | None = None
    rotary: Literal[
        "right",
        "interleaved",
        "half_split",
        "from zero",
        "values too",
        "query only",
        "key only",
        "over heads",
        "missing",
    ] = "right"
    rotary_base: float | None = None
    kv_heads: Literal["grouped", "tiled", "first only"] = "grouped"
    cache_used: bool = True

    # Scores
    scaling: Literal["right", "missing", "d_model", "squared", "heads", "multiplied", "kv_len", "value"] = (
        "right"
    )
    scale_option: Literal["right", "ignored"] = "right"
    bias: Literal["right", "ignored", "after softmax", "before scale"] = "right"
    softcapping: Literal["right", "ignored", "after mask"] = "right"
    precision: Literal["right", "float16", "bfloat16", "float16 product", "bfloat16 product"] = "right"

    # What is visible
    causality: Literal[
        "right", "ignored", "always", "one ahead", "hides self", "inverted", "added", "hidden added"
    ] = "right"
    upper_left: bool = False
    windowing: Literal["right", "ignored", "one more", "one less", "not causal"] = "right"
    masking: Literal[
        "right",
        "ignored",
        "inverted",
        "boolean inverted",
        "added",
        "nonzero attends",
        "nonzero ignores",
        "transposed",
    ] = "right"
    padding: Literal["right", "ignored", "inverted", "added", "on queries"] = "right"
    hidden_score: float | None = None
    hidden_added: float | None = None

    # Weights and output
    softmax: Literal["keys", "queries", "heads", "batch", "missing", "overflows", "before mask"] = "keys"
    join: Literal["right", "view", "width major"] = "right"
    output: Literal["right", "missing", "transposed"] = "right"
