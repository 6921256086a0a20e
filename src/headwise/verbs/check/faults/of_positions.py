"""Faults of what depends on positions: rotation, causality, windows, caches."""

from __future__ import annotations

from headwise.verbs.check.faults.entry import each, entry

OF_ROTATION = (
    entry(
        "rotary-interleaved",
        "Rotary positions turn elements 2i and 2i + 1 together; half-split pairs are expected.",
        "Turn i and i + head_dim / 2 together, or permute the projections of query and key.",
        {"rotary": "interleaved"},
    ),
    entry(
        "rotary-half-split",
        "Rotary positions turn elements i and i + head_dim / 2 together; interleaved pairs are expected.",
        "Turn 2i and 2i + 1 together, or permute the projections of query and key.",
        {"rotary": "half_split"},
    ),
    entry(
        "rotary-offset-ignored",
        "Behind a cache, rotary positions start at 0 again.",
        "Let the first new token's position be the number of cached ones.",
        {"rotary": "from zero"},
    ),
    entry(
        "rotary-on-values",
        "Rotary positions turn the values too.",
        "Turn query and key alone.",
        {"rotary": "values too"},
    ),
    entry(
        "rotary-on-query-only",
        "Rotary positions turn the query alone.",
        "Turn the key too, each row to its own position.",
        {"rotary": "query only"},
    ),
    entry(
        "rotary-on-key-only",
        "Rotary positions turn the key alone.",
        "Turn the query too, each row to its own position.",
        {"rotary": "key only"},
    ),
    entry(
        "rotary-over-heads",
        "Rotary positions count heads, not tokens: the axis of heads was read as that of tokens.",
        "Apply them where tokens are the last axis but one, or say which axis holds the tokens.",
        {"rotary": "over heads"},
    ),
    entry(
        "rotary-missing",
        "Rotary positions are expected, but nothing turns.",
        "Turn query and key to their positions before query . key.",
        {"rotary": "missing"},
    ),
    entry(
        "rotary-base-wrong",
        "Rotary positions turn with another base than the one that is expected.",
        "Take the base, rope_theta, from the checkpoint's configuration.",
        *each("rotary_base", 10_000.0, 100_000.0, 500_000.0, 1_000_000.0),
    ),
)

OF_CAUSALITY = (
    entry(
        "causal-missing",
        "A row sees later keys: the causal mask is missing, or its flag is not used.",
        "Hide key j from row i where j > i + kv_len - seq_len.",
        {"causality": "ignored"},
    ),
    entry(
        "causal-always",
        "Later keys are hidden although the causal flag is off.",
        "Hide later keys only where the flag asks for it.",
        {"causality": "always"},
    ),
    entry(
        "causal-sees-one-ahead",
        "A row sees one key ahead: the causal mask is off by one.",
        "Hide what lies above the diagonal: triu(diagonal=1) is hidden, tril(diagonal=0) is visible.",
        {"causality": "one ahead"},
    ),
    entry(
        "causal-hides-self",
        "A row does not see its own key: the causal mask is off by one.",
        "Keep the diagonal: triu(diagonal=1) is hidden, tril(diagonal=0) is visible.",
        {"causality": "hides self"},
    ),
    entry(
        "causal-upper-left",
        "Where there are more keys than queries, the causal mask is aligned to the first key.",
        "Let the last query see all keys: hide key j from row i where j > i + kv_len - seq_len.",
        {"upper_left": True},
    ),
    entry(
        "mask-inverted",
        "A mask is read the wrong way round: what it should hide is seen, and the rest is hidden.",
        "Check whether True means attend or ignore; invert the mask with ~.",
        *each("masking", "inverted", "boolean inverted"),
        {"causality": "inverted"},
        {"padding": "inverted"},
    ),
    entry(
        "mask-added-as-one",
        "A mask of ones is added to the scores: it raises them by 1 and hides nothing.",
        "Set hidden scores to -inf with masked_fill, or add 0 and -inf, not 1.",
        {"masking": "added"},
        {"padding": "added"},
        *each("causality", "added", "hidden added"),
    ),
    entry(
        "window-off-by-one",
        "The window is one key too wide or too narrow.",
        "Let a row see itself and window - 1 keys before it: j > i - window.",
        *each("windowing", "one more", "one less"),
    ),
    entry(
        "window-ignored",
        "The window is not used: a row sees keys that lie further back.",
        "Hide key j from row i where j <= i - window.",
        {"windowing": "ignored"},
    ),
    entry(
        "window-sees-ahead",
        "The window stands in the place of the causal mask, and reaches as far ahead as back.",
        "Combine the window with the causal mask.",
        {"windowing": "not causal"},
    ),
)
