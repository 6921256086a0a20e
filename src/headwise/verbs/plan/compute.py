"""From a layout and its setting to a `Plan`, with other numbers of KV heads set beside it."""

from __future__ import annotations

from headwise.counts import checked_size, divisors, either
from headwise.errors import ArgumentError
from headwise.layout import HeadLayout
from headwise.verbs.plan import figures
from headwise.verbs.plan.result import Plan, Settings, Variant

BYTES_PER_ELEMENT = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "float8": 1, "int8": 1}
DEFAULTS = {"layers": 1, "context": 2048, "batch": 1, "dtype": "bfloat16", "bias": False}
MOST_VARIANTS = 8


def plan(
    *,
    num_heads: int,
    d_model: int | None = None,
    num_kv_heads: int | None = None,
    head_dim: int | None = None,
    value_head_dim: int | None = None,
    layers: int = 1,
    context: int = 2048,
    batch: int = 1,
    dtype: str = "bfloat16",
    bias: bool = False,
) -> Plan:
    """Return what attention of this layout costs: parameters, products, FLOPs and KV cache bytes.

    Args:
        num_heads: query heads.
        d_model: width of the model; `num_heads * head_dim` by default.
        num_kv_heads: heads of key and value; `num_heads` by default.
        head_dim: width of one query and key; `d_model / num_heads` by default.
        value_head_dim: width of one value; `head_dim` by default.
        layers: attention layers of this layout.
        context: tokens of each sequence.
        batch: sequences.
        dtype: element type of the KV cache, a name of `BYTES_PER_ELEMENT`.
        bias: whether the four projections have biases.

    Raises:
        ArgumentError: a size is not a positive integer, the heads do not divide, or the dtype is unknown.

    Example:
        >>> plan(num_heads=8, d_model=512, context=128).query_key_products.dense
        Figure(value=8388608, unit='products', arithmetic='8 heads x 64 head_dim x 128 x 128 tokens')

    """
    given = {"d_model": d_model, "head_dim": head_dim}
    given |= {"num_kv_heads": num_kv_heads, "value_head_dim": value_head_dim}
    layout, d_model = _layout_and_width(num_heads, **given)
    settings = Settings(
        d_model=d_model,
        layers=checked_size("layers", layers),
        context=checked_size("context", context),
        batch=checked_size("batch", batch),
        dtype=dtype,
        bytes_per_element=_bytes_of(dtype),
        bias=bias,
        derived=tuple(name for name, size in given.items() if size is None),
    )
    return Plan(
        layout=layout,
        kind=_kind(layout),
        settings=settings,
        parameters=figures.parameters(layout, settings),
        query_key_products=figures.products(layout, settings),
        prefill_dense=figures.prefill(layout, settings, causal=False),
        prefill_causal=figures.prefill(layout, settings, causal=True),
        decode_step=figures.decode_step(layout, settings),
        decode_flop_per_byte=figures.decode_flop_per_byte(layout, settings),
        kv_cache=figures.kv_cache(layout, settings),
        variants=tuple(_variant(layout, settings, count) for count in _kv_head_choices(layout)),
    )


def _layout_and_width(
    num_heads: int,
    *,
    d_model: int | None,
    head_dim: int | None,
    num_kv_heads: int | None,
    value_head_dim: int | None,
) -> tuple[HeadLayout, int]:
    others = {"num_kv_heads": num_kv_heads, "head_dim": head_dim, "value_head_dim": value_head_dim}
    if d_model is not None:
        return HeadLayout.of_width(d_model, num_heads, **others), checked_size("d_model", d_model)
    if head_dim is None:
        raise ArgumentError(
            "neither d_model nor head_dim is given; pass d_model, or head_dim (d_model is then "
            "num_heads x head_dim)"
        )
    layout = HeadLayout(
        num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim, value_head_dim=value_head_dim
    )
    return layout, checked_size("d_model", layout.query_width)


def _bytes_of(dtype: str) -> int:
    if dtype not in BYTES_PER_ELEMENT:
        raise ArgumentError(f"dtype={dtype!r} is not known; use {either(list(BYTES_PER_ELEMENT))}")
    return BYTES_PER_ELEMENT[dtype]


def _kind(layout: HeadLayout) -> str:
    if layout.num_kv_heads == layout.num_heads:
        return "MHA"
    return "MQA" if layout.num_kv_heads == 1 else "GQA"


def _kv_head_choices(layout: HeadLayout) -> list[int]:
    """Return KV head counts worth setting side by side, from MHA to MQA, the planned one among them."""
    allowed = divisors(layout.num_heads)
    # Of many divisors, keep those nearest to even steps from 1 to num_heads on a logarithmic scale.
    last = len(allowed) - 1
    kept = {allowed[round(step * last / (MOST_VARIANTS - 1))] for step in range(MOST_VARIANTS)}
    return sorted({*kept, layout.num_kv_heads}, reverse=True)


def _variant(layout: HeadLayout, settings: Settings, num_kv_heads: int) -> Variant:
    other = HeadLayout(
        num_heads=layout.num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=layout.head_dim,
        value_head_dim=layout.value_head_dim,
    )
    weights = other.projection_weights(settings.d_model, bias=settings.bias)
    return Variant(
        kind=_kind(other),
        num_kv_heads=num_kv_heads,
        is_planned=other == layout,
        parameters=settings.layers * weights.total,
        kv_bytes_per_token=figures.kv_bytes(other, settings, tokens=1, batch=1),
        kv_bytes=figures.kv_bytes(other, settings, tokens=settings.context, batch=settings.batch),
        kv_share=num_kv_heads / layout.num_heads,
        decode_flop_per_byte=figures.decode_flop_per_byte(other, settings).value,
    )
