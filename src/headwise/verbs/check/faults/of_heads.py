"""Faults of heads: how rows become heads and heads rows."""

from __future__ import annotations

from headwise.verbs.check.faults.entry import each, entry

OF_HEADS = (
    entry(
        "heads-split-by-view",
        "Rows are split into heads by view or reshape without a transpose, which mixes tokens and heads.",
        "View as [batch, seq_len, heads, head_dim], then transpose(1, 2).",
        *each("split", "view", "fused view", "fused head view"),
    ),
    entry(
        "heads-joined-by-view",
        "Heads are joined by view or reshape without a transpose, which mixes tokens and heads.",
        "Use transpose(1, 2).reshape(batch, seq_len, heads * head_dim).",
        {"join": "view"},
    ),
    entry(
        "heads-split-in-wrong-order",
        "A row's width is split as [head_dim, heads], so that each head takes every so-many-th number.",
        "Split it as [heads, head_dim]: one head's numbers lie side by side.",
        {"split": "width major"},
    ),
    entry(
        "heads-concatenated-in-wrong-order",
        "Heads are joined as [head_dim, heads]: first the first number of each head, then the second.",
        "Join them as [heads, head_dim]: transpose(1, 2).reshape(batch, seq_len, heads * head_dim).",
        {"join": "width major"},
    ),
    entry(
        "heads-share-weights",
        "All heads use the weights of the first.",
        "Give each head its own slice of the projections, or its own module.",
        *each("shared_head", "query key value", "query", "query key"),
    ),
    entry(
        "kv-heads-tiled",
        "KV heads are tiled: query head h reads KV head h % num_kv_heads.",
        "Use repeat_interleave, not repeat: query head h reads KV head h // (num_heads // num_kv_heads).",
        {"kv_heads": "tiled"},
    ),
    entry(
        "kv-heads-unused",
        "Every query head reads the first KV head.",
        "Let query head h read KV head h // (num_heads // num_kv_heads).",
        {"kv_heads": "first only"},
    ),
    entry(
        "heads-and-sequence-mixed",
        "The axes of heads and tokens are taken for one another: attention runs across the heads.",
        "Transpose axes 1 and 2 first; query . key must be [batch, heads, queries, keys].",
        {"heads_mixed": True},
    ),
    entry(
        "batch-and-sequence-mixed",
        "The axes of batch and tokens are taken for one another: attention runs across the batch.",
        "Hand over [seq_len, batch, width], or set batch_first=True.",
        {"batch_mixed": True},
    ),
)

OF_PROJECTIONS = (
    entry(
        "query-and-key-swapped",
        "Query and key are swapped.",
        "Let the rows that ask be the query: scores[i, j] = query[i] . key[j].",
        {"projections_swapped": "query key"},
        {"tensors_swapped": "query key"},
    ),
    entry(
        "key-and-value-swapped",
        "Key and value are swapped.",
        "Compare the query with the key, and weigh the value.",
        {"projections_swapped": "key value"},
        {"tensors_swapped": "key value"},
    ),
    entry(
        "projection-biases-ignored",
        "The biases of the projections are held but not added.",
        "Add them, or create the projections with bias=False.",
        *each("projection_biases", "ignored", "ignored in", "ignored out"),
    ),
    entry(
        "output-projection-missing",
        "The output projection is held but not used.",
        "Return output_projection(joined heads).",
        {"output": "missing"},
    ),
    entry(
        "output-projection-transposed",
        "The output projection is used transposed.",
        "Compute rows @ weight.T for a weight of [out, in], as torch.nn.Linear holds it.",
        {"output": "transposed"},
    ),
)
