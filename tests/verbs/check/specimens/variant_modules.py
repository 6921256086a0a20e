"""Right modules in many ways: maps apart or fused, biases, sizes, rotary positions, caches, returns."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from headwise.rope import Rope

from .variant import Variant, alignment_of, conventions_of, drawn_declared, drawn_sight, options_of
from .variant_body import Sight, body

SEPARATE_NAMES = (
    ("q_proj", "k_proj", "v_proj", "o_proj"),
    ("q_proj", "k_proj", "v_proj", "out_proj"),
    ("query", "key", "value", "dense"),
    ("w_q", "w_k", "w_v", "w_o"),
    ("to_q", "to_k", "to_v", "to_out"),
    ("wq", "wk", "wv", "wo"),
    ("W_query", "W_key", "W_value", "out_proj"),
)
FUSED_NAMES = (
    ("qkv", "proj"),
    ("c_attn", "c_proj"),
    ("Wqkv", "out_proj"),
    ("to_qkv", "to_out"),
    ("qkv_proj", "o_proj"),
)
PER_HEAD_NAMES = (("query_key_value", "dense"), ("qkv", "out"))
TURNING = {
    "half_split": (
        "one, two = x.chunk(2, dim=-1)",
        "return torch.cat((one * cos - two * sin, two * cos + one * sin), dim=-1)",
    ),
    "interleaved": (
        "one, two = x[..., ::2], x[..., 1::2]",
        "return torch.stack((one * cos - two * sin, two * cos + one * sin), dim=-1).flatten(-2)",
    ),
}
INTO_HEADS = ".unflatten(-1, (-1, self.head_dim)).transpose(1, 2)"


@dataclass(frozen=True)
class Drawn:
    """What every module has."""

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    d_model: int
    rope: Rope | None
    scaled: bool
    dropout: float
    returns: str
    softcap: float | None


@dataclass(frozen=True)
class Reading:
    """How a module gets from its arguments to q, k, v: its maps, the lines, the names of what it is given."""

    maps: list[str]
    lines: list[str]
    output: str
    given: tuple[str, ...] = ("x",)
    imports: str = ""


def drawn_sizes(draw: Random, *, grouped: bool, own_value_dim: bool) -> Drawn:
    counts = ((3, 3), (5, 5), (1, 1), (6, 2), (6, 3), (4, 1)) if grouped else ((3, 3), (5, 5), (2, 2))
    heads, kv_heads = draw.choice(counts)
    rope = draw.choice((None, None, Rope(), Rope(pairing="interleaved"), Rope(base=500.0)))
    head_dim = draw.choice((6, 10) if rope else (5, 6, 7, 11))
    return Drawn(
        heads,
        kv_heads,
        head_dim,
        value_dim=draw.choice((head_dim, head_dim, 13)) if own_value_dim else head_dim,
        d_model=draw.choice((heads * head_dim, heads * head_dim, 23, 31)),
        rope=rope,
        scaled=draw.random() < 0.85,
        dropout=draw.choice((0.0, 0.0, 0.15)),
        returns=draw.choice(("out", "out", "out, weights", "out, None", "(out, None, None)")),
        softcap=draw.choice((None, None, None, 2.0)),
    )


def separate(seed: int, draw: Random) -> Variant:
    drawn, names = drawn_sizes(draw, grouped=True, own_value_dim=True), draw.choice(SEPARATE_NAMES)
    outs = (drawn.heads * drawn.head_dim, drawn.kv_heads * drawn.head_dim, drawn.kv_heads * drawn.value_dim)
    sizes = [(drawn.d_model, out) for out in outs] + [(drawn.heads * drawn.value_dim, drawn.d_model)]
    bias, output_bias = draw.choice((True, False)), draw.choice((True, False))
    maps = [
        f"self.{name} = torch.nn.Linear({rows}, {out}, bias={has})"
        for name, (rows, out), has in zip(names, sizes, (bias, bias, bias, output_bias), strict=True)
    ]
    crossing = draw.random() < 0.3 and drawn.rope is None
    given = draw.choice((("query", "key", "value"), ("q", "k", "v"))) if crossing else ("x",)
    counts = ("self.num_heads", "self.num_kv_heads", "self.num_kv_heads")
    lines = [
        f"{letter} = self.{name}({rows}).unflatten(-1, ({count}, -1)).transpose(1, 2)"
        for letter, name, rows, count in zip("qkv", names, given * (3 // len(given)), counts, strict=False)
    ]
    return _written(seed, draw, drawn, Reading(maps, lines, names[3], given))


def fused(seed: int, draw: Random) -> Variant:
    grouped = draw.random() < 0.4
    drawn, (name, output) = drawn_sizes(draw, grouped=grouped, own_value_dim=False), draw.choice(FUSED_NAMES)
    q_width, k_width, width = drawn.heads * drawn.head_dim, drawn.kv_heads * drawn.head_dim, drawn.d_model
    total = q_width + 2 * k_width
    lines = [
        f"q, k, v = self.{name}(x).split(({q_width}, {k_width}, {k_width}), dim=-1)",
        f"q, k, v = (part{INTO_HEADS} for part in (q, k, v))",
    ]
    if not grouped and draw.random() < 0.4:
        axes = "(3, self.num_heads, self.head_dim)"
        lines = [f"q, k, v = self.{name}(x).unflatten(-1, {axes}).permute(2, 0, 3, 1, 4)"]
    if draw.random() < 0.25:
        maps = [f"self.{name} = Conv1D({total}, {width})", f"self.{output} = Conv1D({width}, {q_width})"]
        imports = "from transformers.pytorch_utils import Conv1D\n"
        return _written(seed, draw, drawn, Reading(maps, lines, output, imports=imports))
    maps = [
        f"self.{name} = torch.nn.Linear({width}, {total})",
        f"self.{output} = torch.nn.Linear({q_width}, {width})",
    ]
    return _written(seed, draw, drawn, Reading(maps, lines, output))


def fused_per_head(seed: int, draw: Random) -> Variant:
    drawn, (name, output) = (
        drawn_sizes(draw, grouped=False, own_value_dim=False),
        draw.choice(PER_HEAD_NAMES),
    )
    width = drawn.heads * drawn.head_dim
    maps = [
        f"self.{name} = torch.nn.Linear({drawn.d_model}, {3 * width})",
        f"self.{output} = torch.nn.Linear({width}, {drawn.d_model})",
    ]
    heads = "(self.num_heads, 3 * self.head_dim)"
    lines = [f"q, k, v = self.{name}(x).unflatten(-1, {heads}).transpose(1, 2).chunk(3, dim=-1)"]
    return _written(seed, draw, drawn, Reading(maps, lines, output))


def _written(seed: int, draw: Random, drawn: Drawn, reading: Reading) -> Variant:
    sight = drawn_sight(draw, flag=len(reading.given) == 3)
    cached = reading.given == ("x",) and draw.random() < 0.3
    if cached:
        sight = Sight("always", window=sight.window)
    axes = draw.choice(("bqd", "bqd", "bqd", "qbd"))
    lines = [f"{name} = {name}.transpose(0, 1).contiguous()" for name in reading.given if axes == "qbd"]
    lines += [*reading.lines, *_positions(drawn, cached=cached)]
    returned = "out, cache" if cached else drawn.returns
    lines += body(
        draw,
        sight,
        scaled=drawn.scaled,
        softcap=drawn.softcap,
        dropout=drawn.dropout > 0,
        weights="weights" in returned,
    )
    lines.append(f"out = self.{reading.output}(out.transpose(1, 2).flatten(2))")
    lines += ["out = out.transpose(0, 1)"] if axes == "qbd" else []
    lines.append(f"return {returned}")
    signature = ["self", *reading.given, *options_of(sight), *(["cache=None"] if cached else [])]
    source = _text(drawn, reading, ", ".join(signature), lines)
    scale = None if drawn.scaled else 1.0
    rope = drawn.rope if drawn.rope and (drawn.rope.base == 500.0 or draw.random() < 0.5) else None
    declared = drawn_declared(draw, sight, rope=rope, softcap=drawn.softcap, scale=scale, axes=axes)
    alignment = alignment_of(sight) if cached or len(reading.given) == 3 else {}
    follows = conventions_of(sight, axes, **_followed(drawn), **alignment)
    return Variant(seed, source, "Attention()", declared, follows)


def _followed(drawn: Drawn) -> dict[str, str]:
    rope, cap, group = drawn.rope, drawn.softcap, drawn.heads // drawn.kv_heads
    return {
        "rotary positions": "none" if rope is None else f"{rope.pairing}, base {rope.base:g}",
        "softcap": "none" if cap is None else f"{cap:g}",
        "scale": "head_dim ** -0.5" if drawn.scaled else "1",
        **({"KV heads": f"query head h reads KV head h // {group}"} if group > 1 else {}),
    }


def _positions(drawn: Drawn, *, cached: bool) -> list[str]:
    """Lines that turn queries and keys, and put those of earlier calls in front."""
    lines = ["first = 0 if cache is None else cache[0].shape[2]"] if cached else []
    if drawn.rope is not None:
        first = "first" if cached else "0"
        lines.append(f"q, k = turn(q, {first}), turn(k, {first})")
    if cached:
        lines += [
            "if cache is not None:",
            "    k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)",
            "cache = (k, v)",
        ]
    return lines


def _text(drawn: Drawn, reading: Reading, signature: str, lines: list[str]) -> str:
    start = [
        "super().__init__()",
        f"self.num_heads, self.num_kv_heads = {drawn.heads}, {drawn.kv_heads}",
        f"self.head_dim, self.dropout = {drawn.head_dim}, {drawn.dropout}",
        *reading.maps,
    ]
    return "\n".join(
        (
            f"import math\n\nimport torch\n{reading.imports}",
            *([] if drawn.rope is None else _turning(drawn.rope)),
            "\nclass Attention(torch.nn.Module):",
            "    def __init__(self):",
            *(f"        {line}" for line in start),
            f"\n    def forward({signature}):",
            *(f"        {line}" for line in lines),
            "",
        )
    )


def _turning(rope: Rope) -> list[str]:
    lines = (
        "place = torch.arange(first, first + x.shape[2])[:, None]",
        f"angle = place / {rope.base} ** (torch.arange(0, x.shape[-1], 2) / x.shape[-1])",
        "cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)",
        *TURNING[rope.pairing],
    )
    return ["\ndef turn(x, first):", *(f"    {line}" for line in lines), ""]
