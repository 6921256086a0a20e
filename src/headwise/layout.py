"""How a width is divided into heads, and what that costs: `HeadLayout`, the one home of this arithmetic.

Every module that needs a head count, a parameter count, FLOPs or cache bytes asks here, so that the operator,
the models, the sizes and the worked example cannot disagree. Plain Python integers, exact at any size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from headwise.counts import checked_index, checked_size, divisors, either
from headwise.errors import ArgumentError

_MOST_CHOICES_NAMED = 12


class ProjectionWeights(NamedTuple):
    """Weights of the four projections of one attention layer."""

    query: int
    key: int
    value: int
    output: int

    @property
    def total(self) -> int:
        """All four together."""
        return sum(self)


class AttentionFlops(NamedTuple):
    """Floating-point operations of one attention layer; one multiply-add counts as two."""

    projections: int
    scores: int
    weighted_sum: int

    @property
    def total(self) -> int:
        """All three together."""
        return sum(self)


@dataclass(frozen=True, init=False)
class HeadLayout:
    """How many query heads and KV heads there are, and how wide each is.

    Args:
        num_heads: query heads.
        num_kv_heads: heads of key and value; must divide `num_heads`. `num_heads` by default (MHA); 1 is MQA.
        head_dim: elements of one query and of one key.
        value_head_dim: elements of one value; `head_dim` by default.

    Raises:
        ArgumentError: a count is not a positive integer, or `num_kv_heads` does not divide `num_heads`.

    Example:
        >>> layout = HeadLayout(num_heads=8, num_kv_heads=2, head_dim=64)
        >>> layout.group_size, layout.kv_head_of(5), layout.key_width
        (4, 1, 128)

    Source: Vaswani et al. 2017, section 3.2.2; Ainslie et al. 2023 (GQA), section 2.2.

    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    value_head_dim: int

    def __init__(
        self,
        *,
        num_heads: int,
        num_kv_heads: int | None = None,
        head_dim: int,
        value_head_dim: int | None = None,
    ) -> None:
        num_heads = checked_size("num_heads", num_heads)
        head_dim = checked_size("head_dim", head_dim)
        sizes = {
            "num_heads": num_heads,
            "num_kv_heads": _checked_kv_heads(num_kv_heads, num_heads),
            "head_dim": head_dim,
            "value_head_dim": head_dim
            if value_head_dim is None
            else checked_size("value_head_dim", value_head_dim),
        }
        for name, size in sizes.items():
            object.__setattr__(self, name, size)  # the only way to fill a frozen dataclass

    @classmethod
    def of_width(
        cls,
        d_model: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        value_head_dim: int | None = None,
    ) -> HeadLayout:
        """Return the layout of a model of width `d_model`, where `head_dim` is usually `d_model / num_heads`.

        Raises:
            ArgumentError: `num_heads` does not divide `d_model` and `head_dim` is not given.

        Example:
            >>> HeadLayout.of_width(512, 8).head_dim
            64

        """
        d_model = checked_size("d_model", d_model)
        num_heads = checked_size("num_heads", num_heads)
        if head_dim is None:
            if d_model % num_heads:
                raise ArgumentError(_does_not_divide_width(num_heads, d_model))
            head_dim = d_model // num_heads
        return cls(
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            value_head_dim=value_head_dim,
        )

    @property
    def group_size(self) -> int:
        """Query heads that read one KV head."""
        return self.num_heads // self.num_kv_heads

    @property
    def query_width(self) -> int:
        """Elements of all query heads side by side."""
        return self.num_heads * self.head_dim

    @property
    def key_width(self) -> int:
        """Elements of all key heads side by side."""
        return self.num_kv_heads * self.head_dim

    @property
    def value_width(self) -> int:
        """Elements of all value heads side by side."""
        return self.num_kv_heads * self.value_head_dim

    @property
    def output_width(self) -> int:
        """Elements of all head outputs side by side: what the output projection reads."""
        return self.num_heads * self.value_head_dim

    def kv_head_of(self, head: int) -> int:
        """Return the KV head that query head `head` reads: `head // group_size`."""
        return checked_index("head", head, self.num_heads) // self.group_size

    def query_heads_of(self, kv_head: int) -> range:
        """Return the query heads that read KV head `kv_head`."""
        first = checked_index("kv_head", kv_head, self.num_kv_heads) * self.group_size
        return range(first, first + self.group_size)

    def projection_weights(self, d_model: int, *, bias: bool = False) -> ProjectionWeights:
        """Return the weights of `W_Q`, `W_K`, `W_V` and `W_O` of one layer, biases included if asked for.

        Example:
            >>> HeadLayout.of_width(512, 8).projection_weights(512).total
            1048576

        """
        d_model = checked_size("d_model", d_model)
        rows = d_model + 1 if bias else d_model  # a bias is one more row of W_Q, W_K, W_V
        return ProjectionWeights(
            query=rows * self.query_width,
            key=rows * self.key_width,
            value=rows * self.value_width,
            output=(self.output_width + 1 if bias else self.output_width) * d_model,
        )

    def query_key_products(self, seq_len: int, kv_len: int | None = None, *, causal: bool = False) -> int:
        """Return the multiplications that `Q K^T` takes over all heads of one sequence.

        Example:
            >>> HeadLayout.of_width(512, 8).query_key_products(128)
            8388608

        """
        return self.query_width * visible_pairs(seq_len, kv_len, causal=causal)

    def flops(
        self, d_model: int, seq_len: int, kv_len: int | None = None, *, causal: bool = False
    ) -> AttentionFlops:
        """Return the FLOPs of one layer on `seq_len` new tokens that see `kv_len` keys, their own included.

        Keys and values of earlier tokens come from a cache and are not projected again. The softmax, biases
        and rotary positions are not counted.

        Example:
            >>> HeadLayout(num_heads=8, head_dim=64).flops(256, 128)
            AttentionFlops(projections=134217728, scores=16777216, weighted_sum=16777216)

        """
        pairs = visible_pairs(seq_len, kv_len, causal=causal)
        return AttentionFlops(
            projections=2 * self.projection_weights(d_model).total * seq_len,
            scores=2 * self.query_width * pairs,
            weighted_sum=2 * self.output_width * pairs,
        )

    def kv_cache_bytes(self, *, layers: int, tokens: int, batch: int = 1, bytes_per_element: int) -> int:
        """Return the bytes that the keys and values of `batch` sequences of `tokens` tokens take.

        Example:
            >>> layout = HeadLayout(num_heads=32, num_kv_heads=8, head_dim=128)
            >>> layout.kv_cache_bytes(layers=32, tokens=2048, bytes_per_element=2)
            268435456

        """
        elements = checked_size("layers", layers) * checked_size("tokens", tokens)
        elements *= checked_size("batch", batch) * (self.key_width + self.value_width)
        return elements * checked_size("bytes_per_element", bytes_per_element)


def visible_pairs(seq_len: int, kv_len: int | None = None, *, causal: bool = False) -> int:
    """Return how many (query, key) pairs one head scores; causal means the last query sees every key.

    Example:
        >>> visible_pairs(3), visible_pairs(3, causal=True), visible_pairs(1, 5, causal=True)
        (9, 6, 5)

    """
    seq_len = checked_size("seq_len", seq_len)
    kv_len = seq_len if kv_len is None else checked_size("kv_len", kv_len)
    if not causal:
        return seq_len * kv_len
    # The last row sees kv_len keys, each row above it one fewer; if seq_len > kv_len the first rows see none.
    rows = min(seq_len, kv_len)
    return rows * kv_len - rows * (rows - 1) // 2


def _checked_kv_heads(num_kv_heads: int | None, num_heads: int) -> int:
    if num_kv_heads is None:
        return num_heads
    num_kv_heads = checked_size("num_kv_heads", num_kv_heads)
    if num_heads % num_kv_heads:
        allowed = divisors(num_heads)
        nearest = sorted(sorted(allowed, key=lambda count: abs(count - num_kv_heads))[:_MOST_CHOICES_NAMED])
        word = "use" if len(nearest) == len(allowed) else "the nearest that do are"
        raise ArgumentError(
            f"num_kv_heads={num_kv_heads} does not divide num_heads={num_heads}; {word} {either(nearest)}"
        )
    return num_kv_heads


def _does_not_divide_width(num_heads: int, d_model: int) -> str:
    allowed = divisors(d_model)
    below = [count for count in allowed if count < num_heads][-1:]
    above = [count for count in allowed if count > num_heads][:1]
    choices = either([f"{count} (head_dim {d_model // count})" for count in below + above])
    return (
        f"num_heads={num_heads} does not divide d_model={d_model}; pass head_dim explicitly, or use {choices}"
    )
