"""Faults of what is handed over: masks, padding, biases, a softcap, a cache."""

from __future__ import annotations

from headwise.verbs.check.faults.entry import each, entry

OF_MASKS = (
    entry(
        "mask-ignored",
        "The mask that is handed over is not used.",
        "Set the scores of hidden keys to -inf before the softmax.",
        {"masking": "ignored"},
    ),
    entry(
        "mask-transposed",
        "The mask is used transposed: its rows are taken for keys.",
        "A mask is [queries, keys], as the scores are.",
        {"masking": "transposed"},
    ),
    entry(
        "float-mask-as-boolean",
        "A float mask is read as a boolean one, by zero or not zero, and its numbers are lost.",
        "Add a float mask to the scores.",
        *each("masking", "nonzero attends", "nonzero ignores"),
    ),
    entry(
        "padding-ignored",
        "Padded keys are seen: the padding mask is not used.",
        "Hide padded keys from every row: mask[:, None, None, :].",
        {"padding": "ignored"},
    ),
    entry(
        "padding-on-queries",
        "The padding mask hides rows of queries, not keys.",
        "Hide padded keys from every row: mask[:, None, None, :].",
        {"padding": "on queries"},
    ),
    entry(
        "masked-values-leak",
        "Hidden keys keep a share of the weights: their score is finite and not low enough.",
        "Set hidden scores to -inf before the softmax; do not multiply by the mask.",
        *each("hidden_score", 0.0, 1.0, -1.0, -5.0, -10.0),
        *each("hidden_added", -5.0, -10.0),
    ),
    entry(
        "softcap-after-mask",
        "The softcap comes behind the mask: hidden scores come back as -softcap.",
        "Cap the scores first, then mask them.",
        {"softcapping": "after mask"},
    ),
    entry(
        "softcap-ignored",
        "The softcap is not used.",
        "Use softcap * tanh(scores / softcap) between scaling and masking.",
        {"softcapping": "ignored"},
    ),
    entry(
        "bias-after-softmax",
        "The bias is added to the weights behind the softmax.",
        "Add it to the scores before the softmax.",
        {"bias": "after softmax"},
    ),
    entry(
        "bias-before-scale",
        "The bias is scaled together with query . key.",
        "Scale query . key first, then add the bias.",
        {"bias": "before scale"},
    ),
    entry(
        "bias-ignored",
        "The bias that is handed over is not used.",
        "Add it to the scores before the softmax.",
        {"bias": "ignored"},
    ),
    entry(
        "cache-ignored",
        "What was remembered from an earlier call is not seen.",
        "Concatenate the cached keys and values with the new ones.",
        {"cache_used": False},
    ),
)
