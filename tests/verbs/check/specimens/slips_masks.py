"""Slips in what a row may see, and in where it stands."""

from __future__ import annotations

from headwise.rope import Rope

from .injecting import slip

CAUSAL = [
    slip("causal-sees-one-ahead", "written_out", ("kv_len - seq_len)", "kv_len - seq_len + 1)")),
    slip("causal-sees-one-ahead", "small_gpt", ("block_size).tril()", "block_size).tril(1)")),
    slip("causal-sees-one-ahead", "from_weights", ("diagonal=1", "diagonal=2")),
    slip("causal-sees-one-ahead", "llama_like", ("diagonal=past + 1", "diagonal=past + 2")),
    slip("causal-hides-self", "small_gpt", ("block_size).tril()", "block_size).tril(-1)")),
    slip("causal-hides-self", "from_weights", ("diagonal=1", "diagonal=0")),
    slip("causal-hides-self", "sliding", ("seen = j <= i", "seen = j < i")),
    slip("causal-hides-self", "jax_port", ("[None, :] <= rows", "[None, :] < rows")),
    slip(
        "causal-upper-left",
        "written_out",
        ("tril(diagonal=kv_len - seq_len)", "tril()"),
        causal="lower_right",
    ),
    slip("causal-upper-left", "jax_port", (" + (s - t)", ""), causal="lower_right"),
    slip("causal-upper-left", "llama_like", ("diagonal=past + 1", "diagonal=1")),
    slip("causal-upper-left", "neox_like", ("<= positions[:, None]", "<= torch.arange(length)[:, None]")),
    slip("causal-upper-left", "gpt2_port", ("i >= j - columns + rows", "i >= j")),
    slip(
        "causal-missing",
        "small_gpt",
        ('            att = att.masked_fill(~self.triangle[:n, :n], float("-inf"))\n', ""),
        causal=True,
    ),
    slip(
        "causal-missing",
        "written_out",
        ("    if is_causal:", "    if is_causal and mask is not None:"),
        causal=True,
    ),
    slip("causal-missing", "from_weights", ("        if causal:", "        if causal is None:"), causal=True),
]

CAUSAL += [
    slip("causal-always", "written_out", ("    if is_causal:", "    if is_causal is not None:")),
    slip("causal-always", "from_weights", ("        if causal:", "        if causal is not None:")),
]

WINDOW = [
    slip("window-ignored", "sliding", ("seen & (i - j < self.window)", "seen")),
    slip("window-ignored", "small_gpt_window", ("triangle.triu(-(window - 1))", "triangle")),
    slip("window-sees-ahead", "sliding", ("seen & (i - j < self.window)", "(i - j).abs() < self.window")),
    slip(
        "window-sees-ahead",
        "small_gpt_window",
        ("triangle.triu(-(window - 1))", "torch.ones_like(triangle).triu(1 - window).tril(window - 1)"),
    ),
    slip("window-off-by-one", "sliding", ("i - j < self.window", "i - j <= self.window")),
    slip("window-off-by-one", "sliding", ("i - j < self.window", "i - j < self.window - 1")),
    slip("window-off-by-one", "small_gpt_window", ("-(window - 1)", "-window")),
    slip("window-off-by-one", "small_gpt_window", ("-(window - 1)", "-(window - 2)")),
]

MASK = [
    slip("mask-inverted", "annotated", ("mask == 0", "mask == 1")),
    slip("mask-inverted", "written_out", ("masked_fill(~mask", "masked_fill(mask"), mask_means="attend"),
    slip(
        "mask-inverted",
        "full_width",
        ("masked_fill(~attn_mask", "masked_fill(attn_mask"),
        mask_means="attend",
    ),
    slip(
        "mask-added-as-one",
        "annotated",
        ("scores = scores.masked_fill(mask == 0, -1e9)", "scores = scores + mask"),
    ),
    slip(
        "mask-added-as-one",
        "written_out",
        ('torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))', "mask.float()"),
        mask_means="attend",
    ),
    slip(
        "mask-added-as-one",
        "full_width",
        ("scores = scores.masked_fill(~attn_mask, -1e9)", "scores = scores + attn_mask"),
        mask_means="attend",
    ),
    slip(
        "float-mask-as-boolean",
        "bert_like",
        ("scores = scores + attention_mask", "scores = scores.masked_fill(~attention_mask.bool(), -1e9)"),
    ),
    slip(
        "float-mask-as-boolean",
        "relative_bias",
        ("scores = scores + mask", 'scores = scores.masked_fill(mask == 0, float("-inf"))'),
        mask_means="add",
    ),
    slip("mask-ignored", "annotated", ("mask == 0", "mask == 2")),
    slip("mask-ignored", "full_width", ("    if attn_mask is not None:", "    if attn_mask is True:")),
    slip("mask-transposed", "annotated", ("mask.unsqueeze(1)", "mask.unsqueeze(1).transpose(-2, -1)")),
    slip("mask-transposed", "full_width", ("~attn_mask", "~attn_mask.T"), mask_means="attend"),
    slip(
        "mask-after-softmax",
        "small_gpt",
        ('            att = att.masked_fill(~self.triangle[:n, :n], float("-inf"))\n', ""),
        ("att = self.drop(att)", "att = self.drop(att).masked_fill(~self.triangle[:n, :n], 0.0)"),
    ),
    slip(
        "mask-after-softmax",
        "annotated",
        ("    if mask is not None:\n        scores = scores.masked_fill(mask == 0, -1e9)\n", ""),
        (
            "    dropped = ",
            "    if mask is not None:\n        probabilities = probabilities * mask\n    dropped = ",
        ),
    ),
    slip("masked-values-leak", "annotated", ("mask == 0, -1e9", "mask == 0, 1e-9")),
    slip("masked-values-leak", "gpt2_port", ("w * b - 1e10 * (1 - b)", "w * b")),
    slip("masked-values-leak", "gpt2_port", ("w * b - 1e10 * (1 - b)", "w - 10 * (1 - b)")),
    slip("masked-values-leak", "small_gpt", ('float("-inf")', "-10")),
    slip(
        "padding-on-queries",
        "full_width",
        ("key_padding_mask[:, None, None, :]", "key_padding_mask[:, None, :, None]"),
    ),
    slip("padding-on-queries", "sliding", ("mask[:, None, None, None, :]", "mask[:, None, None, :, None]")),
    slip("padding-ignored", "full_width", ("key_padding_mask is not None", "key_padding_mask is True")),
    slip("padding-ignored", "sliding", ("key_padding_mask is not None", "key_padding_mask is True")),
]

ROTARY = [
    slip(
        "rotary-interleaved",
        "llama_like",
        ("front, back = x.chunk(2, dim=-1)", "front, back = x[..., ::2], x[..., 1::2]"),
        ("torch.cat((-back, front), dim=-1)", "torch.stack((-back, front), dim=-1).flatten(-2)"),
        ("angle = torch.cat((angle, angle), dim=-1)", "angle = angle.repeat_interleave(2, dim=-1)"),
    ),
    slip("rotary-interleaved", "neox_like", rope=Rope(pairing="half_split")),
    slip("rotary-half-split", "llama_like", rope=Rope(pairing="interleaved")),
    slip(
        "rotary-half-split",
        "neox_like",
        ("x.float().reshape(*x.shape[:-1], dim // 2, 2)", "x.float().unflatten(-1, (2, -1)).mT"),
        ("turned.flatten(-2)", "turned.mT.flatten(-2)"),
    ),
    slip(
        "rotary-on-query-only",
        "llama_like",
        ("q, k = rotated(q, cos, sin), rotated(k, cos, sin)", "q = rotated(q, cos, sin)"),
    ),
    slip("rotary-on-query-only", "neox_like", (", turn(k, positions, self.base)", ", k")),
    slip(
        "rotary-on-key-only",
        "llama_like",
        ("q, k = rotated(q, cos, sin), rotated(k, cos, sin)", "k = rotated(k, cos, sin)"),
    ),
    slip("rotary-on-key-only", "neox_like", ("turn(q, positions, self.base), ", "q, ")),
    slip(
        "rotary-over-heads",
        "llama_like",
        ("cos, sin = self.angles(past, length)", "q, k = q.transpose(1, 2), k.transpose(1, 2)"),
        (
            "q, k = rotated(q, cos, sin), rotated(k, cos, sin)",
            "q, k = (rotated(x, *self.angles(past, x.shape[2])).transpose(1, 2) for x in (q, k))",
        ),
    ),
    slip(
        "rotary-over-heads",
        "grouped_complex",
        ("self.n_heads, -1))", "self.n_heads, -1)).transpose(1, 2)"),
        ("self.n_kv_heads, -1))\n        xv", "self.n_kv_heads, -1)).transpose(1, 2)\n        xv"),
        ("= xq.transpose(1, 2), xk.transpose(1, 2), xv.transpose(1, 2)", "= xq, xk, xv.transpose(1, 2)"),
    ),
    slip("rotary-missing", "llama_like", ("        q, k = rotated(q, cos, sin), rotated(k, cos, sin)\n", "")),
    slip(
        "rotary-missing",
        "neox_like",
        ("        q, k = turn(q, positions, self.base), turn(k, positions, self.base)\n", ""),
    ),
    slip("rotary-base-wrong", "llama_like", ("rope_theta=10000.0", "rope_theta=500000.0")),
    slip("rotary-base-wrong", "neox_like", ("10_000.0", "1_000_000.0")),
    slip("rotary-offset-ignored", "llama_like", ("self.angles(past, length)", "self.angles(0, length)")),
    slip(
        "rotary-offset-ignored",
        "neox_like",
        ("turn(q, positions, self.base), turn(k, positions,", "turn(q, here, self.base), turn(k, here,"),
        ("positions = torch.arange(", "here = torch.arange(length)\n        positions = torch.arange("),
    ),
    slip("cache-ignored", "gpt2_port", ("if past is not None:", "if past is True:")),
    slip(
        "cache-ignored",
        "llama_like",
        ("if past_key_value is not None:", "if past_key_value is True:"),
        ("(length, past + length), lowest).triu(diagonal=past + 1)", "(length, length), lowest).triu(1)"),
    ),
    slip(
        "rotary-on-values",
        "llama_like",
        ("q, k = rotated(q, cos, sin)", "v = rotated(v, cos, sin)\n        q, k = rotated(q, cos, sin)"),
    ),
    slip(
        "rotary-on-values",
        "neox_like",
        ("q, k = turn(q, positions", "v = turn(v, positions, self.base)\n        q, k = turn(q, positions"),
    ),
]

# What is not wrong, but goes wrong easily: by the names of what it leads to.
CAUTIONED = [
    slip(
        "float-mask-as-boolean",
        "written_out",
        ("        if mask.dtype == torch.bool:\n            mask =", "        mask ="),
        ("masked_fill(~mask,", "masked_fill(~mask.bool(),"),
    ),
    slip("empty-rows-nan", "written_out"),
    slip(
        "empty-rows-nan",
        "relative_bias",
        ("scores = scores + mask", "scores = scores.masked_fill(mask, -torch.inf)"),
    ),
    slip("masked-values-leak", "jax_port"),
    slip("masked-values-leak", "full_width"),
    slip("causal-upper-left", "written_out", ("tril(diagonal=kv_len - seq_len)", "tril()")),
    slip("causal-upper-left", "jax_port", (" + (s - t)", "")),
    slip(
        "inputs-changed",
        "full_width",
        (
            "scores = torch.matmul(q, k.transpose(2, 3)) / q.shape[-1] ** 0.5",
            "q /= q.shape[-1] ** 0.5\n    scores = torch.matmul(q, k.transpose(2, 3))",
        ),
    ),
    slip("inputs-changed", "written_out", ("(query * factor) @", "query.mul_(factor) @")),
    slip("question-refused", "annotated", ("mask = mask.unsqueeze(1)", 'raise NotImplementedError("masks")')),
    slip(
        "question-refused",
        "full_width",
        (
            "scores = scores.masked_fill(key_padding_mask[",
            "scores = scores.masked_fill(1 - key_padding_mask[",
        ),
    ),
]
