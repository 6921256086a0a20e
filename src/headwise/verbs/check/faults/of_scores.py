"""Faults of the scores and of the softmax."""

from __future__ import annotations

from headwise.verbs.check.faults.entry import each, entry

OF_SCALE = (
    entry(
        "scale-missing",
        "The scores are not scaled.",
        "Multiply query . key by head_dim ** -0.5.",
        {"scaling": "missing"},
    ),
    entry(
        "scale-by-d-model",
        "The scores are scaled by the width of the model, d_model ** -0.5, not by that of a head.",
        "Multiply query . key by head_dim ** -0.5.",
        {"scaling": "d_model"},
    ),
    entry(
        "scale-squared",
        "The scores are divided by head_dim, not by its square root; or they are scaled twice.",
        "Multiply query . key by head_dim ** -0.5, once.",
        {"scaling": "squared"},
    ),
    entry(
        "scale-by-head-count",
        "The scores are scaled by the number of heads, num_heads ** -0.5, not by the width of a head.",
        "Multiply query . key by head_dim ** -0.5.",
        {"scaling": "heads"},
    ),
    entry(
        "scale-multiplied",
        "The scores are multiplied by the square root of head_dim, not divided by it.",
        "Divide query . key by head_dim ** 0.5.",
        {"scaling": "multiplied"},
    ),
    entry(
        "scale-by-length",
        "The scores are scaled by the number of keys, kv_len ** -0.5: the size of another axis was read.",
        "Read head_dim from the last axis of query: query.shape[-1].",
        {"scaling": "kv_len"},
    ),
    entry(
        "scale-by-value-dim",
        "The scores are scaled by the width of a head of value, not of query and key.",
        "Read head_dim from query, since value may have another width.",
        {"scaling": "value"},
    ),
    entry(
        "scale-ignored",
        "The scale that is handed over is not used.",
        "Multiply query . key by the given scale.",
        {"scale_option": "ignored"},
    ),
)

OF_SOFTMAX = (
    entry(
        "softmax-over-queries",
        "The softmax runs over the queries: each key's column sums to 1, not each query's row.",
        "Take the softmax over the last axis, dim=-1, of scores [batch, heads, queries, keys].",
        {"softmax": "queries"},
    ),
    entry(
        "softmax-over-heads",
        "The softmax runs over the heads.",
        "Take the softmax over the last axis, dim=-1; dim=1 of four axes is the heads.",
        {"softmax": "heads"},
    ),
    entry(
        "softmax-over-batch",
        "The softmax runs over the batch.",
        "Take the softmax over the last axis, dim=-1; a softmax without dim may run over the first.",
        {"softmax": "batch"},
    ),
    entry(
        "softmax-missing",
        "There is no softmax: the scores themselves weigh the values.",
        "Take the softmax of the scores over the keys before they weigh the values.",
        {"softmax": "missing"},
    ),
    entry(
        "softmax-overflows",
        "The exponentials of the softmax overflow: the largest score of a row is not taken off first.",
        "Use torch.softmax, or subtract each row's largest score before the exponential.",
        {"softmax": "overflows"},
    ),
    entry(
        "mask-after-softmax",
        "The mask is laid onto the weights behind the softmax, so that what is hidden still takes its share.",
        "Set the scores of hidden keys to -inf before the softmax.",
        {"softmax": "before mask"},
    ),
)

OF_SIXTEEN_BITS = (
    entry(
        "overflow-in-16-bits",
        "The scores are computed in float16, where they overflow at 65504.",
        "Scale the query before the product, or compute scores in float32 or bfloat16.",
        {"precision": "float16 product"},
        is_last_resort=True,
    ),
    entry(
        "rounded-to-16-bits",
        "Query and key are rounded to 16 bits on the way.",
        "Keep float32 where float32 is given.",
        *each("precision", "float16", "bfloat16", "bfloat16 product"),
        is_last_resort=True,
    ),
)
