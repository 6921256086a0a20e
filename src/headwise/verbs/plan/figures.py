"""Each number of a plan beside its arithmetic: values come from `HeadLayout`, the words from here."""

from __future__ import annotations

from headwise.layout import AttentionFlops, HeadLayout, ProjectionWeights
from headwise.verbs.plan.result import Cache, Figure, Flops, Parameters, Products, Settings


def parameters(layout: HeadLayout, settings: Settings) -> Parameters:
    """Return the weights of each projection, of one layer and of all."""
    weights = layout.projection_weights(settings.d_model, bias=settings.bias)
    rows = f"({settings.d_model:,} d_model + 1)" if settings.bias else _count(settings.d_model, "d_model")
    heads, kv_heads = _count(layout.num_heads, "heads"), _count(layout.num_kv_heads, "KV heads")
    head_dim = _count(layout.head_dim, "head_dim")
    value_head_dim = _count(layout.value_head_dim, _value_name(layout))
    output_rows = f"({heads} x {value_head_dim} + 1)" if settings.bias else f"{heads} x {value_head_dim}"
    return Parameters(
        query=Figure(weights.query, "weights", f"{rows} x {heads} x {head_dim}"),
        key=Figure(weights.key, "weights", f"{rows} x {kv_heads} x {head_dim}"),
        value=Figure(weights.value, "weights", f"{rows} x {kv_heads} x {value_head_dim}"),
        output=Figure(weights.output, "weights", f"{output_rows} x {_count(settings.d_model, 'd_model')}"),
        one_layer=Figure(weights.total, "weights", _sum(weights)),
        total=Figure(
            settings.layers * weights.total,
            "weights",
            f"{_count(settings.layers, 'layers')} x {weights.total:,}",
        ),
    )


def products(layout: HeadLayout, settings: Settings) -> Products:
    """Return the multiplications of `Q K^T`, with every pair and with those a causal mask leaves."""
    return Products(
        dense=_products(layout, settings, causal=False), causal=_products(layout, settings, causal=True)
    )


def _products(layout: HeadLayout, settings: Settings, *, causal: bool) -> Figure:
    value = layout.query_key_products(settings.context, causal=causal) * settings.layers * settings.batch
    heads = f"{_count(layout.num_heads, 'heads')} x {_count(layout.head_dim, 'head_dim')}"
    return Figure(value, "products", f"{_repeats(settings)}{heads} x {_pairs(settings, causal=causal)}")


def prefill(layout: HeadLayout, settings: Settings, *, causal: bool) -> Flops:
    """Return the FLOPs of reading the whole context at once."""
    flops = layout.flops(settings.d_model, settings.context, causal=causal)
    new_tokens = f" x {_count(settings.context, 'tokens')}"
    return _flops(layout, settings, flops, new_tokens, _pairs(settings, causal=causal))


def decode_step(layout: HeadLayout, settings: Settings) -> Flops:
    """Return the FLOPs of one new token that sees the whole context."""
    flops = layout.flops(settings.d_model, 1, settings.context, causal=True)
    return _flops(layout, settings, flops, "", _count(settings.context, "keys"))


def _flops(
    layout: HeadLayout, settings: Settings, one_layer: AttentionFlops, new_tokens: str, pairs: str
) -> Flops:
    times = settings.layers * settings.batch
    weights = layout.projection_weights(settings.d_model).total
    twice = f"2 x {_repeats(settings)}"
    heads = _count(layout.num_heads, "heads")
    head_dim = _count(layout.head_dim, "head_dim")
    value_head_dim = _count(layout.value_head_dim, _value_name(layout))
    parts = AttentionFlops(*(times * part for part in one_layer))
    return Flops(
        projections=Figure(parts.projections, "FLOP", f"{twice}{_count(weights, 'weights')}{new_tokens}"),
        scores=Figure(parts.scores, "FLOP", f"{twice}{heads} x {head_dim} x {pairs}"),
        weighted_sum=Figure(parts.weighted_sum, "FLOP", f"{twice}{heads} x {value_head_dim} x {pairs}"),
        total=Figure(parts.total, "FLOP", _sum(parts)),
    )


def decode_flop_per_byte(layout: HeadLayout, settings: Settings) -> Figure:
    """Return the FLOPs a decode step does on each cached byte it reads."""
    heads, element = _count(layout.group_size, "heads"), _count(settings.bytes_per_element, "bytes")
    # Each cached element is read once and takes part in one multiply-add for every query head of its group.
    return Figure(
        2 * layout.group_size / settings.bytes_per_element,
        "FLOP per byte",
        f"2 x {heads} per KV head / {element}",
    )


def kv_cache(layout: HeadLayout, settings: Settings) -> Cache:
    """Return the bytes of keys and values, of one token and of the whole context and batch."""
    per_token = kv_bytes(layout, settings, tokens=1, batch=1)
    layers = f"{_count(settings.layers, 'layers')} x " if settings.layers > 1 else ""
    kv_heads = _count(layout.num_kv_heads, "KV heads")
    widths = f"({layout.head_dim:,} head_dim + {layout.value_head_dim:,} value_head_dim)"
    if layout.value_head_dim == layout.head_dim:
        widths = f"2 x {layout.head_dim:,} head_dim"
    element = _count(settings.bytes_per_element, "bytes")
    batch = f"{_count(settings.batch, 'sequences')} x " if settings.batch > 1 else ""
    return Cache(
        bytes_per_token=Figure(per_token, "bytes", f"{layers}{kv_heads} x {widths} x {element}"),
        total=Figure(
            kv_bytes(layout, settings, tokens=settings.context, batch=settings.batch),
            "bytes",
            f"{batch}{_count(settings.context, 'tokens')} x {_count(per_token, 'bytes')}",
        ),
    )


def kv_bytes(layout: HeadLayout, settings: Settings, *, tokens: int, batch: int) -> int:
    """Return the bytes of keys and values of `batch` sequences of `tokens` tokens."""
    return layout.kv_cache_bytes(
        layers=settings.layers, tokens=tokens, batch=batch, bytes_per_element=settings.bytes_per_element
    )


def _count(number: int, name: str) -> str:
    return f"{number:,} {name.removesuffix('s') if number == 1 else name}"


def _repeats(settings: Settings) -> str:
    """Return the factors that are said only when there are several layers or sequences."""
    factors = ((settings.layers, "layers"), (settings.batch, "sequences"))
    return "".join(f"{_count(number, name)} x " for number, name in factors if number > 1)


def _pairs(settings: Settings, *, causal: bool) -> str:
    context = settings.context
    return f"{context:,} x {context + 1:,} / 2 tokens" if causal else f"{context:,} x {context:,} tokens"


def _sum(parts: ProjectionWeights | AttentionFlops) -> str:
    if len(set(parts)) == 1:
        return f"{len(parts)} x {parts[0]:,}"
    return " + ".join(f"{part:,}" for part in parts)


def _value_name(layout: HeadLayout) -> str:
    return "head_dim" if layout.value_head_dim == layout.head_dim else "value_head_dim"
