"""The conformance set: masks, layouts, lengths at tile edges, head counts, dtypes, NaN, sizes, gradients.

Sizes are small, so that a line that shows a fault is short; at the edges of tiles they are what they must be.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headwise.verbs.check_machine.case import Case

_LOWEST = "torch.finfo(q.dtype).min"
_ROW_2_EMPTY = "(torch.arange(11) != 2)[:, None] & (torch.rand(2, 4, 11, 11) > 0.4)"
_KEY_4_HIDDEN = "(torch.arange(11) != 4).expand(2, 4, 11, 11)"
_TRANSPOSED = ".transpose(1, 2).contiguous().transpose(1, 2)"
_LEARNING: dict[str, Any] = {"wants": "gradients"}


def _cases() -> Iterator[Case]:
    yield from _no_mask_and_causal()
    yield from _window_padding_packed()
    yield from _boolean_masks()
    yield from _float_masks()
    yield from _empty_rows()
    yield from _layouts()
    yield from _tile_edges()
    yield from _heads()
    yield from _dtypes()
    yield from _extras()
    yield from _hidden_and_seen()
    yield from _large()
    yield from _decode()
    yield from _zero_sizes()
    yield from _gradients()
    yield from _hard_gradients()


def _holes(shape: str) -> str:
    """Return a random mask that hides 0.4 of the pairs, but never a query's own position: no row is empty."""
    length = shape.rsplit(", ", 1)[-1]
    return f"(torch.rand({shape}) > 0.4) | torch.eye({length}, dtype=torch.bool)"


def _row_of(number: str) -> str:
    """Return a bias of one number for one query and of 0 for the others."""
    return f"torch.zeros(11, 11).index_fill(0, torch.tensor(2), {number})"


def _all(view: str, *, which: str = "q, k, v") -> tuple[str, ...]:
    """Return the statement that gives tensors another view."""
    return (f"{which} = (x{view} for x in ({which}))",)


def _no_mask_and_causal() -> Iterator[Case]:
    group = "no mask"
    yield Case(group, "equal lengths", compiled=True)
    yield Case(group, "5 queries, 11 keys", seq_len=5)
    yield Case(group, "one tensor thrice", self_attention=True)
    group = "causal"
    yield Case(group, "11 tokens", causal=True, compiled=True)
    yield Case(group, "65 tokens", causal=True, seq_len=65, kv_len=65)
    group = "causal, rectangular"
    yield Case(group, "5 queries, 11 keys", causal=True, seq_len=5, compiled=True)
    yield Case(group, "63 queries, 257 keys", causal=True, seq_len=63, kv_len=257)
    yield Case(group, "11 queries, 5 keys", causal=True, kv_len=5)


def _window_padding_packed() -> Iterator[Case]:
    group = "window"
    yield Case(group, "3 keys, 11 tokens", window=3, compiled=True)
    yield Case(group, "3 keys, 5 queries, 11 keys", window=3, seq_len=5)
    yield Case(group, "65 keys, 130 tokens", window=65, seq_len=130, kv_len=130)
    group = "padding"
    yield Case(group, "right", right_padded=(11, 4), compiled=True)
    yield Case(group, "left", left_padded=(11, 6), compiled=True)
    yield Case(group, "right, causal", right_padded=(11, 4), causal=True)
    yield Case(group, "right, one tensor thrice", right_padded=(11, 4), self_attention=True)
    group = "packed documents"
    yield Case(group, "3, 2 and 6 tokens", documents=(3, 2, 6), compiled=True)
    yield Case(group, "causal", documents=(3, 2, 6), causal=True)


def _boolean_masks() -> Iterator[Case]:
    group = "boolean mask"
    for shape in ("2, 4, 11, 11", "1, 4, 11, 11", "2, 1, 11, 11", "11, 11"):
        yield Case(group, f"shape {shape}", visible=_holes(shape), compiled=shape == "2, 4, 11, 11")
    keys = "(torch.rand(2, 1, 1, 11) > 0.4) | (torch.arange(11) == 7)"
    yield Case(group, "shape 2, 1, 1, 11", visible=keys)
    yield Case(group, "transposed", visible=f"({_holes('2, 4, 11, 11')}).mT")


def _float_masks() -> Iterator[Case]:
    group = "float mask"
    zeros, numbers = (f"torch.{made}(2, 4, 11, 11)" for made in ("zeros", "randn"))
    hidden = f"~({_holes('2, 4, 11, 11')})"
    yield Case(group, "zeros and -inf", bias=f"{zeros}.masked_fill({hidden}, -torch.inf)", compiled=True)
    yield Case(group, "numbers and -inf", bias=f"{numbers}.masked_fill({hidden}, -torch.inf)")
    yield Case(group, "zeros and the lowest number", bias=f"{zeros}.masked_fill({hidden}, {_LOWEST})")
    yield Case(group, "a row of the lowest number", bias=_row_of(_LOWEST))
    yield Case(group, "a row of -1e9", bias=_row_of("-1e9"))
    group = "bias"
    for shape in ("2, 4, 11, 11", "1, 4, 11, 11", "1, 4, 1, 11", "2, 1, 11, 1", "11, 11"):
        yield Case(group, f"shape {shape}", bias=f"torch.randn({shape})", compiled=shape == "1, 4, 11, 11")
    distance = "(torch.arange(11)[:, None] - torch.arange(11)).abs()"
    slopes = "2.0 ** -torch.arange(1, 5)[None, :, None, None]"
    yield Case(group, "slopes of distance", bias=f"-{distance} * {slopes}")


def _empty_rows() -> Iterator[Case]:
    group = "empty rows"
    yield Case(group, "one row of a boolean mask", visible=_ROW_2_EMPTY, compiled=True)
    yield Case(group, "one row of -inf", bias=_row_of("-torch.inf"))
    yield Case(group, "an element without keys", right_padded=(11, 0), compiled=True)
    yield Case(group, "left padding, causal", left_padded=(11, 6), causal=True)
    yield Case(group, "no keys, one tensor thrice", right_padded=(11, 0), self_attention=True)


def _layouts() -> Iterator[Case]:
    group = "layout"
    views = {
        "[batch, length, heads, width]": _TRANSPOSED,
        "[heads, batch, length, width]": ".transpose(0, 1).contiguous().transpose(0, 1)",
        "[batch, heads, width, length]": ".mT.contiguous().mT",
        "every other number": ".repeat_interleave(2, -1)[..., ::2]",
        "from an odd address": ".flatten().repeat(2)[1:].roll(1)[1 : x.numel() + 1].view(x.shape)",
        "cut from a longer buffer": ".repeat(1, 1, 2, 1)[:, :, :11]",
    }
    for name, view in views.items():
        yield Case(group, name, then=_all(view), causal=True, compiled=view == _TRANSPOSED)
    yield Case(group, "expanded heads", then=_all("[:, :1].expand(2, 4, 11, 16)", which="k, v"))
    yield Case(group, "expanded batch", then=_all("[:1].expand(2, 4, 11, 16)", which="k, v"))
    behind = "k, v = (torch.cat([x, torch.nan * x], 2)[:, :, :11] for x in (k, v))"
    yield Case(group, "NaN behind the last key", then=(behind,))


def _tile_edges() -> Iterator[Case]:
    group = "tile edges"
    of: dict[str, Any] = {"batch": 1, "num_heads": 2, "num_kv_heads": 2}
    for length in (1, 63, 64, 65, 127, 128, 129, 255, 256, 257):
        sizes = {**of, "seq_len": length, "kv_len": length}
        yield Case(group, f"causal, {length} tokens", causal=True, compiled=length in {1, 64, 129}, **sizes)
    for seq_len, kv_len in ((63, 257), (64, 255), (65, 256), (129, 65), (255, 1), (257, 63)):
        sizes = {**of, "seq_len": seq_len, "kv_len": kv_len}
        yield Case(group, f"{seq_len} queries, {kv_len} keys", compiled=seq_len == 63, **sizes)


def _heads() -> Iterator[Case]:
    group = "GQA and MQA"
    for num_heads, num_kv_heads in ((8, 2), (6, 3), (4, 1)):
        heads: dict[str, Any] = {"num_heads": num_heads, "num_kv_heads": num_kv_heads}
        yield Case(group, f"{num_heads} heads, {num_kv_heads} KV", compiled=num_heads == 8, **heads)
        yield Case(group, f"{num_heads} heads, {num_kv_heads} KV, causal", causal=True, **heads)
    yield Case(group, "a mask for each head", num_heads=8, num_kv_heads=2, visible=_holes("2, 8, 11, 11"))
    group = "widths of heads"
    for width in (64, 13, 1, 96, 256):
        widths: dict[str, Any] = {"head_dim": width, "value_head_dim": width}
        yield Case(group, f"head_dim {width}", causal=True, compiled=width == 13, **widths)
    yield Case(group, "head_dim 16, values of 24", value_head_dim=24, causal=True, compiled=True)
    yield Case(group, "head_dim 64, values of 5", head_dim=64, value_head_dim=5, causal=True)


def _dtypes() -> Iterator[Case]:
    sizes: dict[str, Any] = {"head_dim": 64, "value_head_dim": 64, "seq_len": 65, "kv_len": 65}
    for dtype in ("bfloat16", "float16", "float64"):
        of = {**sizes, "dtype": dtype}
        yield Case(dtype, "no mask", **of)
        yield Case(dtype, "causal", causal=True, compiled=True, **of)
        yield Case(dtype, "boolean mask", visible=_holes("2, 4, 65, 65"), **of)
        yield Case(dtype, "bias", bias="torch.randn(1, 4, 65, 65)", **of)
        yield Case(dtype, "GQA, causal", causal=True, num_kv_heads=2, **of)


def _extras() -> Iterator[Case]:
    yield Case("softcap", "2", softcap=2.0, compiled=True)
    yield Case("softcap", "2, causal", softcap=2.0, causal=True)
    yield Case("softcap", "2, a float mask", softcap=2.0, bias=_row_of("-torch.inf"))
    yield Case("sinks", "no mask", sinks=True)
    yield Case("sinks", "causal", sinks=True, causal=True)
    yield Case("sinks", "an empty row", sinks=True, visible=_ROW_2_EMPTY)
    yield Case("logsumexp", "no mask", wants="logsumexp", compiled=True)
    yield Case("logsumexp", "an empty row", wants="logsumexp", visible=_ROW_2_EMPTY)


def _hidden_and_seen() -> Iterator[Case]:
    group = "NaN in hidden places"
    of: dict[str, Any] = {"visible": _KEY_4_HIDDEN, "poisoned": True}
    padding = ("k[1, :, 4:] = v[1, :, 4:] = torch.nan",)
    yield Case(group, "in a value", then=("v[:, :, 4] = torch.nan",), compiled=True, **of)
    yield Case(group, "in a key", then=("k[:, :, 4] = torch.nan",), **of)
    yield Case(group, "infinity in a value", then=("v[:, :, 4] = torch.inf",), **of)
    yield Case(group, "in padding", then=padding, right_padded=(11, 4), poisoned=True)
    yield Case(group, "in the future", then=("v[:, :, 7:] = torch.nan",), causal=True, poisoned=True)
    group = "NaN in plain sight"
    yield Case(group, "in a query", then=("q[0, :, 3] = torch.nan",), compiled=True)
    yield Case(group, "in a key", then=("k[1, :, 3] = torch.nan",))
    yield Case(group, "in a value", then=("v[1, :, 3] = torch.nan",))
    yield Case(group, "infinity in a value", then=("v[1, 2, 3] = torch.inf",), infinite=True)


def _large() -> Iterator[Case]:
    group = "large numbers"
    sizes: dict[str, Any] = {"batch": 1, "num_heads": 2, "num_kv_heads": 2, "seq_len": 5, "kv_len": 7}
    for dtype in ("float16", "bfloat16", "float32"):
        of = {**sizes, "head_dim": 64, "value_head_dim": 64, "dtype": dtype, "compiled": dtype == "float16"}
        yield Case(group, f"q = k = 300, {dtype}", then=("q, k = 300 + 0 * q, 300 + 0 * k",), **of)
    yield Case(group, "values of 60000, float16", dtype="float16", then=("v = 60000 + 0 * v",))
    yield Case(group, "one key takes all", then=("q = 100 * q",))


def _decode() -> Iterator[Case]:
    group = "decode"
    yield Case(group, "11 keys", seq_len=1, causal=True, compiled=True)
    yield Case(group, "257 keys, GQA", seq_len=1, kv_len=257, num_heads=8, num_kv_heads=2, causal=True)
    yield Case(group, "129 keys, bfloat16", seq_len=1, kv_len=129, dtype="bfloat16", causal=True)
    yield Case(group, "65 keys, window of 9", seq_len=1, kv_len=65, window=9)
    yield Case(group, "257 keys, padded", seq_len=1, kv_len=257, right_padded=(257, 64))


def _zero_sizes() -> Iterator[Case]:
    group = "zero sizes"
    yield Case(group, "no batch", batch=0)
    yield Case(group, "no queries", seq_len=0)
    yield Case(group, "no keys", kv_len=0)
    yield Case(group, "no queries and no keys", seq_len=0, kv_len=0)


def _gradients() -> Iterator[Case]:
    group = "gradients"
    heads: dict[str, Any] = {"num_heads": 8, "num_kv_heads": 2}
    yield Case(group, "no mask", compiled=True, **_LEARNING)
    yield Case(group, "causal", causal=True, **_LEARNING)
    yield Case(group, "causal, 65 tokens", causal=True, seq_len=65, kv_len=65, **_LEARNING)
    yield Case(group, "boolean mask, GQA", visible=_holes("2, 8, 11, 11"), **heads, **_LEARNING)
    yield Case(group, "a bias", bias="torch.randn(1, 4, 11, 11)", **_LEARNING)
    yield Case(group, "a learned bias", bias="torch.randn(1, 4, 11, 11)", bias_is_learned=True, **_LEARNING)
    yield Case(group, "strided", then=_all(_TRANSPOSED), causal=True, **_LEARNING)
    yield Case(group, "bfloat16, causal", dtype="bfloat16", causal=True, **_LEARNING)


def _hard_gradients() -> Iterator[Case]:
    group = "gradients, hard rows"
    yield Case(group, "an empty row", visible=_ROW_2_EMPTY, **_LEARNING)
    yield Case(group, "a row of -1e9", bias=_row_of("-1e9"), **_LEARNING)
    yield Case(group, "a row of the lowest number", bias=_row_of(_LOWEST), **_LEARNING)
    hidden: dict[str, Any] = {"visible": _KEY_4_HIDDEN, "poisoned": True}
    yield Case(group, "NaN in a hidden value", then=("v[:, :, 4] = torch.nan",), **hidden, **_LEARNING)


CASES: tuple[Case, ...] = tuple(_cases())
