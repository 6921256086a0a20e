"""Right attention in many ways: whole pieces of user code, drawn from a seed."""

from __future__ import annotations

from random import Random

from .variant import (
    FUNCTION_NAMES,
    Variant,
    alignment_of,
    conventions_of,
    drawn_declared,
    drawn_sight,
    options_of,
)
from .variant_body import body
from .variant_modules import fused, fused_per_head, separate


def variant(seed: int) -> Variant:
    draw = Random(seed)  # noqa: S311  # nothing secret
    make = draw.choice((_of_heads, _of_width, _of_weights, separate, separate, fused, fused, fused_per_head))
    return make(seed, draw)


def _function(lines: list[str], name: str, signature: str) -> str:
    text = "\n    ".join(lines)
    return f"import math\n\nimport torch\n\n\ndef {name}({signature}):\n    {text}\n"


def _of_heads(seed: int, draw: Random) -> Variant:
    sight, softcap = drawn_sight(draw), draw.choice((None, None, 3.0))
    axes = draw.choice(("bhqd", "bqhd"))
    names = draw.choice(FUNCTION_NAMES)
    weights = draw.random() < 0.25
    lines = [f"q, k, v = {', '.join(names)}"]
    if axes == "bqhd":
        lines = [f"q, k, v = ({', '.join(names)})", "q, k, v = (each.transpose(1, 2) for each in (q, k, v))"]
    lines += body(draw, sight, scaled=True, softcap=softcap, dropout=False, weights=weights)
    lines += ["out = out.transpose(1, 2)"] if axes == "bqhd" else []
    lines.append("return out, weights" if weights else "return out")
    source = _function(lines, "attend", ", ".join([*names, *options_of(sight)]))
    declared = drawn_declared(draw, sight, softcap=softcap, axes=axes)
    cap = "none" if softcap is None else f"{softcap:g}"
    follows = conventions_of(sight, axes, softcap=cap, scale="head_dim ** -0.5", **alignment_of(sight))
    return Variant(seed, source, "attend", declared, follows)


def _of_width(seed: int, draw: Random) -> Variant:
    sight = drawn_sight(draw)
    names = draw.choice(FUNCTION_NAMES)
    axes = draw.choice(("bqd", "bqd", "qbd"))
    grouped = draw.random() < 0.4
    counts = ["num_heads", "num_kv_heads"] if grouped else ["num_heads"]
    of_kv = counts[-1]
    lines = [f"q, k, v = {', '.join(names)}"]
    lines += ["q, k, v = q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1)"] if axes == "qbd" else []
    lines += [
        "q = q.unflatten(-1, (num_heads, -1)).transpose(1, 2)",
        f"k, v = (each.unflatten(-1, ({of_kv}, -1)).transpose(1, 2) for each in (k, v))",
    ]
    lines += body(draw, sight, scaled=True, softcap=None, dropout=False, weights=False)
    lines.append("out = out.transpose(1, 2).flatten(2)")
    lines.append("return out.transpose(0, 1)" if axes == "qbd" else "return out")
    source = _function(lines, "attend", ", ".join([*names, *counts, *options_of(sight)]))
    follows = conventions_of(sight, axes, **alignment_of(sight))
    return Variant(seed, source, "attend", drawn_declared(draw, sight, axes=axes), follows)


def _of_weights(seed: int, draw: Random) -> Variant:
    sight = drawn_sight(draw)
    names = draw.choice((("w_q", "w_k", "w_v", "w_o"), ("wq", "wk", "wv", "wo"), ("Wq", "Wk", "Wv", "Wo")))
    linear = draw.random() < 0.4

    def mapped(rows: str, weight: str) -> str:
        return f"torch.nn.functional.linear({rows}, {weight})" if linear else f"{rows} @ {weight}"

    heads = ".unflatten(-1, (num_heads, -1)).transpose(1, 2)"
    lines = [f"{name} = ({mapped('x', weight)}){heads}" for name, weight in zip("qkv", names, strict=False)]
    lines += body(draw, sight, scaled=True, softcap=None, dropout=False, weights=False)
    lines.append(f"return {mapped('out.transpose(1, 2).flatten(2)', names[3])}")
    source = _function(lines, "attend", ", ".join(["x", *names, "num_heads", *options_of(sight)]))
    return Variant(seed, source, "attend", drawn_declared(draw, sight), conventions_of(sight, "bqd"))
