"""Slips in how rows become heads and heads become rows: axes, KV heads, projections."""

from __future__ import annotations

from .injecting import slip

SPLITTING = [
    slip(
        "heads-split-by-view",
        "full_width",
        ("x.view(batch, length, num_heads, ", "x.reshape(batch, num_heads, length, "),
        ("width // num_heads).transpose(1, 2)", "width // num_heads)"),
    ),
    slip(
        "heads-split-by-view",
        "small_gpt",
        (
            "t.view(t.shape[0], t.shape[1], self.n_head, -1)",
            "t.reshape(t.shape[0], self.n_head, t.shape[1], -1)",
        ),
        (", -1).transpose(1, 2)", ", -1)"),
    ),
    slip(
        "heads-split-by-view",
        "annotated",
        ("(batch, length, self.heads, self.d_k).transpose(1, 2)", "(batch, self.heads, length, self.d_k)"),
    ),
    slip(
        "heads-split-in-wrong-order",
        "full_width",
        (
            "num_heads, width // num_heads).transpose(1, 2)",
            "width // num_heads, num_heads).permute(0, 3, 1, 2)",
        ),
    ),
    slip(
        "heads-split-in-wrong-order",
        "annotated",
        (
            "length, self.heads, self.d_k).transpose(1, 2)",
            "length, self.d_k, self.heads).permute(0, 3, 1, 2)",
        ),
    ),
    slip(
        "heads-and-sequence-mixed",
        "vision",
        ("permute(2, 0, 3, 1, 4)", "permute(2, 0, 1, 3, 4)"),
        ("heads.transpose(1, 2)", "heads"),
    ),
    slip(
        "heads-and-sequence-mixed",
        "flash_like",
        ("    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)\n", ""),
        ("torch.matmul(p, v).transpose(1, 2)", "torch.matmul(p, v)"),
    ),
    slip(
        "batch-and-sequence-mixed",
        "from_weights",
        ("q, k, v = x @ w_q", "x = x.transpose(0, 1)\n    tokens = x.shape[1]\n    q, k, v = x @ w_q"),
        ("    tokens = x.shape[1]\n    heads", "    heads"),
        ("return together @ w_o", "return (together @ w_o).transpose(0, 1)"),
    ),
    slip(
        "batch-and-sequence-mixed",
        "vision",
        ("batch, patches, dim = x.shape", "patches, batch, dim = x.shape"),
        (
            ".reshape(batch, patches, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)",
            ".reshape(patches, batch, 3, self.num_heads, -1).permute(2, 1, 3, 0, 4)",
        ),
        ("heads.transpose(1, 2).reshape(batch, patches", "heads.permute(2, 0, 1, 3).reshape(patches, batch"),
    ),
    slip("batch-and-sequence-mixed", "wrapped", (", batch_first=True", "")),
]

JOINING = [
    slip("heads-joined-by-view", "small_gpt", ("y.transpose(1, 2).reshape", "y.reshape")),
    slip(
        "heads-joined-by-view", "annotated", ("context.transpose(1, 2).contiguous()", "context.contiguous()")
    ),
    slip(
        "heads-joined-by-view",
        "llama_like",
        ("torch.matmul(weights, v).transpose(1, 2)", "torch.matmul(weights, v)"),
    ),
    slip(
        "heads-concatenated-in-wrong-order",
        "full_width",
        ("x.transpose(1, 2).reshape(", "x.permute(0, 2, 3, 1).reshape("),
    ),
    slip(
        "heads-concatenated-in-wrong-order",
        "bert_like",
        ("context.permute(0, 2, 1, 3)", "context.permute(0, 2, 3, 1)"),
    ),
    slip(
        "heads-concatenated-in-wrong-order", "vision", ("heads.transpose(1, 2)", "heads.permute(0, 2, 3, 1)")
    ),
]

KV_HEADS = [
    slip(
        "kv-heads-tiled",
        "written_out",
        ("key.repeat_interleave(groups, dim=1)", "key.repeat(1, groups, 1, 1)"),
        ("value.repeat_interleave(groups, dim=1)", "value.repeat(1, groups, 1, 1)"),
    ),
    slip(
        "kv-heads-tiled",
        "llama_like",
        (
            "k.repeat_interleave(n_rep, dim=1), v.repeat_interleave(n_rep, dim=1)",
            "k.tile(n_rep, 1, 1), v.tile(n_rep, 1, 1)",
        ),
    ),
    slip(
        "kv-heads-tiled",
        "flash_like",
        ("k[:, :, None].expand(-1, -1, n_rep, -1, -1)", "k[:, None].expand(-1, n_rep, -1, -1, -1)"),
        ("v[:, :, None].expand(-1, -1, n_rep, -1, -1)", "v[:, None].expand(-1, n_rep, -1, -1, -1)"),
    ),
]

KV_HEADS += [
    slip(
        "kv-heads-unused",
        "flash_like",
        ("k[:, :, None].expand(-1, -1, n_rep, -1, -1).flatten(1, 2)", "k[:, :1]"),
        ("v[:, :, None].expand(-1, -1, n_rep, -1, -1).flatten(1, 2)", "v[:, :1]"),
    ),
    slip(
        "kv-heads-unused",
        "llama_like",
        ("k.repeat_interleave(n_rep, dim=1), v.repeat_interleave(n_rep, dim=1)", "k[:, 0:1], v[:, 0:1]"),
    ),
]

PROJECTIONS = [
    slip("projection-biases-ignored", "small_gpt", ("self.c_attn(x)", "F.linear(x, self.c_attn.weight)")),
    slip("projection-biases-ignored", "vision", ("self.qkv(x)", "nn.functional.linear(x, self.qkv.weight)")),
    slip(
        "projection-biases-ignored",
        "annotated",
        ("self.w_q(query)", "query @ self.w_q.weight.T"),
        ("self.w_k(key)", "key @ self.w_k.weight.T"),
        ("self.w_v(value)", "value @ self.w_v.weight.T"),
    ),
    slip("output-projection-missing", "small_gpt", ("return self.c_proj(y)", "return y")),
    slip("output-projection-missing", "annotated", ("return self.w_o(context), ", "return context, ")),
    slip("output-projection-missing", "llama_like", ("return self.o_proj(output), ", "return output, ")),
    slip("output-projection-transposed", "from_weights", ("together @ w_o", "together @ w_o.T")),
    slip(
        "output-projection-transposed",
        "gpt2_port",
        ("a = self.c_proj(a)", "a = a @ self.c_proj.weight.T + self.c_proj.bias"),
    ),
    slip(
        "output-projection-transposed",
        "annotated",
        ("self.w_o(context), ", "context @ self.w_o.weight + self.w_o.bias, "),
    ),
    slip("query-and-key-swapped", "small_gpt", ("q, k, v = self.c_attn(x)", "k, q, v = self.c_attn(x)")),
    slip("query-and-key-swapped", "vision", ("q, k, v = qkv", "k, q, v = qkv")),
    slip("query-and-key-swapped", "from_weights", ("q, k, v = x @ w_q", "k, q, v = x @ w_q")),
    slip(
        "key-and-value-swapped", "gpt2_port", ("q, k, v = (self.split_heads", "q, v, k = (self.split_heads")
    ),
    slip("key-and-value-swapped", "small_gpt", ("q, k, v = self.c_attn(x)", "q, v, k = self.c_attn(x)")),
    slip(
        "key-and-value-swapped",
        "bert_like",
        ("self.for_scores(self.key(", "self.for_scores(self.other("),
        ("self.for_scores(self.value(", "self.for_scores(self.key("),
        ("self.for_scores(self.other(", "self.for_scores(self.value("),
    ),
    slip(
        "heads-share-weights",
        "head_by_head",
        ("[Head(n_embd, head_size) for _ in range(num_heads)]", "[Head(n_embd, head_size)] * num_heads"),
    ),
    slip(
        "heads-share-weights",
        "head_by_head",
        ("[h(x) for h in self.heads]", "[self.heads[0](x) for h in self.heads]"),
    ),
    slip("heads-share-weights", "from_weights", ("slice(i * d_k, (i + 1) * d_k)", "slice(0, d_k)")),
]
