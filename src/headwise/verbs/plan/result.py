"""What `plan` finds: frozen numbers, each beside the arithmetic that gave it."""

from __future__ import annotations

from dataclasses import dataclass

from headwise.layout import HeadLayout


@dataclass(frozen=True)
class Figure:
    """A number, its unit, and the arithmetic that gave it: "8 heads x 64 head_dim x 128 x 128 tokens"."""

    value: int | float
    unit: str
    arithmetic: str


@dataclass(frozen=True)
class Settings:
    """What the layout alone does not say; `derived` names the sizes that follow from the others."""

    d_model: int
    layers: int
    context: int
    batch: int
    dtype: str
    bytes_per_element: int
    bias: bool
    derived: tuple[str, ...]


@dataclass(frozen=True)
class Parameters:
    """Weights of the four projections (biases included if there are any), of one layer, and of all layers."""

    query: Figure
    key: Figure
    value: Figure
    output: Figure
    one_layer: Figure
    total: Figure


@dataclass(frozen=True)
class Products:
    """Multiplications of `Q K^T` over all layers and the batch: all pairs, and those a causal mask leaves."""

    dense: Figure
    causal: Figure


@dataclass(frozen=True)
class Flops:
    """FLOPs of all layers and the batch; a multiply-add is two, softmax and biases are not counted."""

    projections: Figure
    scores: Figure
    weighted_sum: Figure
    total: Figure


@dataclass(frozen=True)
class Cache:
    """Bytes of keys and values: of one token, and of the whole context and batch."""

    bytes_per_token: Figure
    total: Figure


@dataclass(frozen=True)
class Variant:
    """The same attention with another number of KV heads."""

    kind: str
    num_kv_heads: int
    is_planned: bool
    parameters: int
    kv_bytes_per_token: int
    kv_bytes: int
    kv_share: float
    decode_flop_per_byte: float


@dataclass(frozen=True)
class Plan:
    """What one attention layout costs."""

    layout: HeadLayout
    kind: str
    settings: Settings
    parameters: Parameters
    query_key_products: Products
    prefill_dense: Flops
    prefill_causal: Flops
    decode_step: Flops
    decode_flop_per_byte: Figure
    kv_cache: Cache
    variants: tuple[Variant, ...]
