"""Slips between the product of query and key and the weights: scale, softcap, bias, softmax, dropout."""

from __future__ import annotations

from .injecting import slip

SCALE = [
    slip("scale-missing", "written_out", ("1.0 / math.sqrt(head_dim)", "1.0")),
    slip("scale-missing", "small_gpt", ("            att = att / math.sqrt(k.shape[-1])\n", "")),
    slip("scale-missing", "llama_like", (" * self.head_dim**-0.5", "")),
    slip("scale-by-d-model", "small_gpt", ("math.sqrt(k.shape[-1])", "math.sqrt(c)")),
    slip("scale-by-d-model", "full_width", ("q.shape[-1] ** 0.5", "query.shape[-1] ** 0.5")),
    slip("scale-by-d-model", "vision", ("(dim // num_heads) ** -0.5", "dim**-0.5")),
    slip("scale-squared", "bert_like", ("/ self.attention_head_size**0.5", "/ self.attention_head_size")),
    slip("scale-squared", "jax_port", ("scale = h**-0.5", "scale = 1 / h")),
    slip("scale-squared", "vision", ("q = q * self.scale", "q, k = q * self.scale, k * self.scale")),
    slip("scale-by-head-count", "vision", ("(dim // num_heads) ** -0.5", "num_heads**-0.5")),
    slip("scale-by-head-count", "annotated", ("math.sqrt(query.size(-1))", "math.sqrt(query.size(1))")),
    slip("scale-by-head-count", "jax_port", ("scale = h**-0.5", "scale = n**-0.5")),
    slip("scale-multiplied", "written_out", ("1.0 / math.sqrt(head_dim)", "math.sqrt(head_dim)")),
    slip("scale-multiplied", "bert_like", ("scores / self.att", "scores * self.att")),
    slip("scale-by-length", "annotated", ("math.sqrt(query.size(-1))", "math.sqrt(scores.size(-1))")),
    slip("scale-by-length", "small_gpt", ("math.sqrt(k.shape[-1])", "math.sqrt(k.shape[-2])")),
    slip("scale-by-value-dim", "written_out", ("math.sqrt(head_dim)", "math.sqrt(value.size(-1))")),
    slip("scale-by-value-dim", "jax_port", ("scale = h**-0.5", "scale = value.shape[-1] ** -0.5")),
    slip("scale-ignored", "written_out", (" if scale is None else scale", "")),
    slip("scale-ignored", "flash_like", (" if softmax_scale is None else softmax_scale", "")),
]

SOFTMAX = [
    slip("softmax-over-queries", "written_out", ("softmax(scores, dim=-1)", "softmax(scores, dim=-2)")),
    slip("softmax-over-queries", "small_gpt", ("F.softmax(att, dim=-1)", "F.softmax(att, dim=-2)")),
    slip("softmax-over-queries", "bert_like", ("softmax(dim=-1)", "softmax(dim=2)")),
    slip("softmax-over-heads", "annotated", ("softmax(scores, dim=-1)", "softmax(scores, dim=1)")),
    slip("softmax-over-heads", "vision", ("softmax(dim=-1)", "softmax(dim=1)")),
    slip("softmax-over-heads", "jax_port", ("softmax(dim=3)", "softmax(dim=1)")),
    slip("softmax-over-batch", "annotated", ("softmax(scores, dim=-1)", "softmax(scores, dim=0)")),
    slip("softmax-over-batch", "vision", ("softmax(dim=-1)", "softmax(dim=0)")),
    slip(
        "softmax-overflows",
        "from_weights",
        ("(scores - scores.max(dim=2, keepdim=True).values).exp()", "scores.exp()"),
    ),
    slip(
        "softmax-overflows",
        "relative_bias",
        (
            "torch.softmax(scores.float(), dim=-1).type_as(scores)",
            "scores.exp() / scores.exp().sum(dim=-1, keepdim=True)",
        ),
    ),
    slip("softmax-missing", "vision", (".softmax(dim=-1)", "")),
    slip("softmax-missing", "bert_like", ("scores.softmax(dim=-1)", "scores")),
    slip("softmax-missing", "full_width", ("F.softmax(scores, dim=-1)", "scores")),
]

ORDER = [
    slip(
        "softcap-after-mask",
        "sliding",
        (
            "        if self.softcap is not None:\n"
            "            logits = torch.tanh(logits / self.softcap) * self.softcap\n",
            "",
        ),
        (
            "        probs = torch.softmax",
            "        logits = torch.tanh(logits / self.softcap) * self.softcap\n"
            "        probs = torch.softmax",
        ),
    ),
    slip(
        "softcap-after-mask",
        "flash_like",
        ("    if softcap > 0:\n        attn = softcap * torch.tanh(attn / softcap)\n", ""),
        (
            "    p = attn.softmax(-1)\n",
            "    if softcap > 0:\n"
            "        attn = softcap * torch.tanh(attn / softcap)\n"
            "    p = attn.softmax(-1)\n",
        ),
    ),
    slip(
        "softcap-ignored",
        "sliding",
        ("torch.tanh(logits / self.softcap) * self.softcap", "logits"),
    ),
    slip("softcap-ignored", "flash_like", ("if softcap > 0:", "if softcap is None:")),
    slip(
        "bias-after-softmax",
        "jax_port",
        ("    if bias is not None:\n        logits = logits + bias\n", ""),
        (
            "    probs = probs.reshape(",
            "    if bias is not None:\n        probs = probs + bias\n    probs = probs.reshape(",
        ),
    ),
    slip(
        "bias-after-softmax",
        "relative_bias",
        ("        if position_bias is not None:\n            scores = scores + position_bias\n", ""),
        (
            "        output = torch.matmul",
            "        if position_bias is not None:\n"
            "            weights = weights + position_bias\n"
            "        output = torch.matmul",
        ),
    ),
]

BIAS = [
    slip(
        "bias-before-scale",
        "jax_port",
        (".reshape(b, n, t, s) * scale", ".reshape(b, n, t, s)"),
        ("logits = logits + bias", "logits = logits + bias\n    logits = logits * scale"),
    ),
    slip(
        "bias-before-scale",
        "alibi",
        ("alpha=self.inv_norm_factor)", "alpha=1.0) * self.inv_norm_factor"),
    ),
    slip("bias-ignored", "jax_port", ("    if bias is not None:\n        logits = logits + bias\n", "")),
    slip("bias-ignored", "alibi", ("beta=1.0", "beta=0.0")),
    slip("bias-ignored", "relative_bias", ("scores = scores + position_bias", "pass")),
]

PRECISION = [
    slip(
        "overflow-in-16-bits",
        "small_gpt",
        ("q @ k.transpose(-2, -1)", "(q.half() @ k.half().transpose(-2, -1)).float()"),
    ),
    slip(
        "overflow-in-16-bits",
        "bert_like",
        (
            'torch.einsum("bhid,bhjd->bhij", q, k)',
            'torch.einsum("bhid,bhjd->bhij", q.half(), k.half()).float()',
        ),
    ),
    slip(
        "rounded-to-16-bits",
        "vision",
        ("q = q * self.scale", "q, k = q.bfloat16().float() * self.scale, k.bfloat16().float()"),
    ),
    slip(
        "rounded-to-16-bits",
        "llama_like",
        (
            "torch.matmul(q, k.transpose(2, 3))",
            "torch.matmul(q.half().float(), k.half().float().transpose(2, 3))",
        ),
    ),
]

REPEATED = [
    slip(
        "unrepeatable",
        "vision",
        ("q = q * self.scale", "q = q * self.scale + q.new_empty(q.shape).normal_()"),
    ),
    slip(
        "unrepeatable",
        "bert_like",
        ("scores = scores / self.att", "scores = (scores + 5 * torch.randn_like(scores)) / self.att"),
    ),
    slip(
        "unrepeatable",
        "small_gpt",
        ("self.flash = flash", "self.flash = flash\n        self.temperature = 1.0"),
        ("att = att / math", "self.temperature *= 0.95\n            att = att * self.temperature / math"),
    ),
]

DROPOUT = [
    slip("weights-after-dropout", "annotated", ("value), probabilities", "value), dropped")),
    slip(
        "weights-after-dropout",
        "bert_like",
        (
            "        context = torch.einsum(",
            "        probs = self.dropout(probs)\n        context = torch.einsum(",
        ),
        ("self.dropout(probs), v)", "probs, v)"),
    ),
    slip(
        "dropout-in-eval",
        "small_gpt_flash",
        ("p = self.dropout if self.training else 0.0", "p = self.dropout"),
    ),
    slip("dropout-in-eval", "annotated", ("dropped = dropout(", "dropped = nn.functional.dropout(")),
    slip(
        "dropout-in-eval",
        "bert_like",
        ("self.dropout(probs), v)", "torch.dropout(probs, self.dropout.p, True), v)"),
    ),
]
