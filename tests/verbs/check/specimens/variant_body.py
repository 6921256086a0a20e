"""The lines of right attention between heads that go in and heads that come out, drawn among many ways.

Where a body begins there are `q` `[batch, num_heads, seq_len, head_dim]`, `k` and `v` of num_kv_heads; where
it ends, `out` as q. What may be seen is up to `Sight`.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

CONSTANTS = ('float("-inf")', "-torch.inf", "-1e9", "torch.finfo(scores.dtype).min", "-2.0e38")


@dataclass(frozen=True)
class Sight:
    """What a row sees.

    - causal: "always", "flag" (an argument says so) or "never"; upper_left: where lengths differ
    - window: keys it sees, itself included
    - mask: "attend", "ignore", "add" or None, of the argument `mask`; padding: "hides", "keeps" or None, of
      the argument `padding`, `[batch, kv_len]`
    """

    causal: str = "never"
    upper_left: bool = False
    window: int | None = None
    mask: str | None = None
    padding: str | None = None

    @property
    def conditions(self) -> list[str]:
        """The lines that narrow `seen`, of whatever shape broadcasts to the scores'."""
        offset = "" if self.upper_left else " + k.shape[-2] - q.shape[-2]"
        lines = [
            f"i = torch.arange(q.shape[-2])[:, None]{offset}",
            "j = torch.arange(k.shape[-2])[None, :]",
            "seen = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool)",
        ]
        if self.causal == "always":
            lines.append("seen = seen & (j <= i)")
        if self.causal == "flag":
            lines += ["if is_causal:", "    seen = seen & (j <= i)"]
        if self.window is not None:
            lines.append(f"seen = seen & (i - j < {self.window})")
        if self.mask in ("attend", "ignore"):
            negated = "~" if self.mask == "ignore" else ""
            lines += ["if mask is not None:", f"    seen = seen & {negated}mask.bool()"]
        if self.padding is not None:
            negated = "~" if self.padding == "hides" else ""
            lines += [
                "if padding is not None:",
                f"    seen = seen & {negated}padding[:, None, None, :].bool()",
            ]
        return lines if len(lines) > 3 else []


def body(
    draw: Random, sight: Sight, *, scaled: bool, softcap: float | None, dropout: bool, weights: bool
) -> list[str]:
    """Lines from q, k, v to `out`, and to `weights` if asked."""
    plain = softcap is None and not weights
    if plain and draw.random() < 0.25:
        return _by_torch(draw, sight, scaled=scaled, dropout=dropout)
    kv_heads = draw.choice(("repeat", "expand", "indexed", "grouped"))
    before, after = _scaling(draw, scaled=scaled)
    lines = [*before, *_repeating(kv_heads), *_scores(draw, kv_heads), *after]
    if softcap is not None:
        lines.append(f"scores = {softcap} * torch.tanh(scores / {softcap})")
    lines += _hiding(draw, sight)
    lines += _softmax(draw)
    if dropout:
        lines.append("kept = torch.nn.functional.dropout(weights, self.dropout, training=self.training)")
    return [*lines, *_mixing(draw, kv_heads, "kept" if dropout else "weights")]


def _by_torch(draw: Random, sight: Sight, *, scaled: bool, dropout: bool) -> list[str]:
    lines = sight.conditions
    given = ["q, k, v", "enable_gqa=True"]
    if sight.mask == "add":
        lines.append("extra = torch.zeros(q.shape[-2], k.shape[-2], dtype=q.dtype)")
        if sight.conditions:
            lines.append('extra = torch.zeros(seen.shape).masked_fill(~seen, float("-inf")).to(q.dtype)')
        lines += ["if mask is not None:", "    extra = extra + mask"]
        given.append("attn_mask=extra")
    elif lines:
        given.append("attn_mask=seen")
    if not scaled:
        given.append("scale=1.0")
    if dropout:
        given.append("dropout_p=self.dropout if self.training else 0.0")
    call = f"torch.nn.functional.scaled_dot_product_attention({', '.join(given)})"
    return [*lines, f"out = {call}"]


def _scaling(draw: Random, *, scaled: bool) -> tuple[list[str], list[str]]:
    """Lines before the scores, and lines after."""
    if not scaled:
        return [], []
    return draw.choice(
        (
            ([], ["scores = scores / math.sqrt(q.shape[-1])"]),
            ([], ["scores = scores * q.shape[-1] ** -0.5"]),
            (["q = q / math.sqrt(q.shape[-1])"], []),
            (["q, k = q * q.shape[-1] ** -0.25, k * k.shape[-1] ** -0.25"], []),
            (["k = k * k.shape[-1] ** -0.5"], []),
        )
    )


def _repeating(kv_heads: str) -> list[str]:
    groups = "groups = q.shape[1] // k.shape[1]"
    if kv_heads == "repeat":
        repeated = (f"{name} = {name}.repeat_interleave(groups, dim=1)" for name in "kv")
        return [groups, *repeated]
    if kv_heads == "expand":
        repeated = (
            f"{name} = {name}[:, :, None].expand(-1, -1, groups, -1, -1).flatten(1, 2)" for name in "kv"
        )
        return [groups, *repeated]
    if kv_heads == "indexed":
        return [groups, "which = torch.arange(q.shape[1]) // groups", "k, v = k[:, which], v[:, which]"]
    return []


def _scores(draw: Random, kv_heads: str) -> list[str]:
    if kv_heads == "grouped":
        return [
            "apart = q.unflatten(1, (k.shape[1], -1))",
            'scores = torch.einsum("bgrid,bgjd->bgrij", apart, k).flatten(1, 2)',
        ]
    product = draw.choice(
        (
            "q @ k.transpose(-2, -1)",
            "torch.matmul(q, k.mT)",
            'torch.einsum("bhid,bhjd->bhij", q, k)',
            "torch.bmm(q.flatten(0, 1), k.flatten(0, 1).mT).unflatten(0, q.shape[:2])",
            "(q[..., :, None, :] * k[..., None, :, :]).sum(dim=-1)",
        )
    )
    return [f"scores = {product}"]


def _hiding(draw: Random, sight: Sight) -> list[str]:
    lines = sight.conditions
    constant = draw.choice(CONSTANTS)
    if lines:
        lines.append(
            draw.choice(
                (
                    f"scores = scores.masked_fill(~seen, {constant})",
                    f"scores = torch.where(seen, scores, {constant})",
                    f"scores = scores + torch.zeros(seen.shape).masked_fill(~seen, {constant}).to(q.dtype)",
                )
            )
        )
    if sight.mask == "add":
        lines += ["if mask is not None:", "    scores = scores + mask"]
    return lines


def _softmax(draw: Random) -> list[str]:
    return draw.choice(
        (
            ["weights = torch.softmax(scores, dim=-1)"],
            ["weights = torch.nn.functional.softmax(scores, dim=3, dtype=torch.float32).to(q.dtype)"],
            ["weights = scores.double().softmax(-1).type_as(scores)"],
            [
                "weights = (scores - scores.amax(-1, keepdim=True)).exp()",
                "weights = weights / weights.sum(-1, keepdim=True)",
            ],
            ["weights = torch.exp(scores - torch.logsumexp(scores, dim=-1, keepdim=True))"],
            ["weights = torch.log_softmax(scores, dim=-1).exp()"],
        )
    )


def _mixing(draw: Random, kv_heads: str, weights: str) -> list[str]:
    if kv_heads == "grouped":
        return [
            f"apart = {weights}.unflatten(1, (v.shape[1], -1))",
            'out = torch.einsum("bgrij,bgjd->bgrid", apart, v).flatten(1, 2)',
        ]
    mixed = draw.choice(
        (
            f"{weights} @ v",
            f'torch.einsum("bhij,bhjd->bhid", {weights}, v)',
            f"torch.bmm({weights}.flatten(0, 1), v.flatten(0, 1)).unflatten(0, q.shape[:2])",
        )
    )
    return [f"out = {mixed}"]
