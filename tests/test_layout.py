from fractions import Fraction

import numpy as np
import pytest

from headwise.errors import ArgumentError
from headwise.layout import HeadLayout, visible_pairs


def test_defaults_are_plain_multi_head_attention() -> None:
    plain = HeadLayout(num_heads=5, head_dim=7)
    assert (plain.num_kv_heads, plain.value_head_dim, plain.group_size) == (5, 7, 1)
    assert plain == HeadLayout(num_heads=5, num_kv_heads=5, head_dim=7, value_head_dim=7)


def test_widths_with_every_size_different() -> None:
    sizes = HeadLayout(num_heads=6, num_kv_heads=2, head_dim=7, value_head_dim=11)
    assert sizes.group_size == 3
    assert (sizes.query_width, sizes.key_width, sizes.value_width, sizes.output_width) == (42, 14, 22, 66)


def test_query_heads_are_grouped_not_tiled() -> None:
    sizes = HeadLayout(num_heads=6, num_kv_heads=2, head_dim=7)
    assert [sizes.kv_head_of(head) for head in range(6)] == [0, 0, 0, 1, 1, 1]
    assert [list(sizes.query_heads_of(kv_head)) for kv_head in range(2)] == [[0, 1, 2], [3, 4, 5]]


def test_of_width_divides_the_width() -> None:
    assert HeadLayout.of_width(35, 5) == HeadLayout(num_heads=5, head_dim=7)
    explicit = HeadLayout.of_width(512, 7, num_kv_heads=1, head_dim=13, value_head_dim=17)
    assert explicit == HeadLayout(num_heads=7, num_kv_heads=1, head_dim=13, value_head_dim=17)


def test_numpy_integers_become_plain_ones() -> None:
    sizes = HeadLayout(num_heads=np.int64(6), num_kv_heads=np.int32(3), head_dim=np.int64(7))
    assert type(sizes.num_heads) is type(sizes.num_kv_heads) is type(sizes.head_dim) is int
    assert sizes == HeadLayout(num_heads=6, num_kv_heads=3, head_dim=7)


def test_weights_of_the_published_example() -> None:
    weights = HeadLayout.of_width(512, 8).projection_weights(512)
    assert weights == (262_144, 262_144, 262_144, 262_144)
    assert weights.total == 1_048_576
    assert HeadLayout.of_width(512, 1).projection_weights(512).total == 1_048_576


def test_weights_count_what_real_matrices_hold() -> None:
    d_model = 13
    sizes = HeadLayout(num_heads=6, num_kv_heads=2, head_dim=7, value_head_dim=11)
    matrices = [np.zeros((d_model, width)) for width in (42, 14, 22)] + [np.zeros((66, d_model))]
    biases = [np.zeros(matrix.shape[1]) for matrix in matrices]
    assert list(sizes.projection_weights(d_model)) == [matrix.size for matrix in matrices]
    assert list(sizes.projection_weights(d_model, bias=True)) == [
        matrix.size + bias.size for matrix, bias in zip(matrices, biases, strict=True)
    ]


@pytest.mark.parametrize("seq_len", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("kv_len", [1, 2, 3, 5, 7])
def test_visible_pairs_are_counted_in_the_drawn_mask(seq_len: int, kv_len: int) -> None:
    drawn = np.tril(np.ones((seq_len, kv_len)), k=kv_len - seq_len)
    assert visible_pairs(seq_len, kv_len, causal=True) == drawn.sum()
    assert visible_pairs(seq_len, kv_len) == seq_len * kv_len


def test_products_of_the_published_example_do_not_depend_on_the_head_count() -> None:
    assert HeadLayout.of_width(512, 8).query_key_products(128) == 8_388_608
    assert HeadLayout.of_width(512, 1).query_key_products(128) == 8_388_608
    assert HeadLayout.of_width(512, 8).query_key_products(128, causal=True) == 512 * 128 * 129 // 2


# One layer, hidden size 256, 8 query heads of 64, 128 tokens; counted independently by an operator profiler.
@pytest.mark.parametrize(
    ("num_kv_heads", "projections"), [(8, 134_217_728), (2, 83_886_080), (1, 75_497_472)]
)
def test_flops_agree_with_measured_counts(num_kv_heads: int, projections: int) -> None:
    flops = HeadLayout(num_heads=8, num_kv_heads=num_kv_heads, head_dim=64).flops(256, 128)
    assert flops.projections == projections
    assert flops.scores + flops.weighted_sum == 33_554_432
    assert flops.total == projections + 33_554_432


def test_flops_of_a_wide_value_head_and_of_a_decode_step() -> None:
    sizes = HeadLayout(num_heads=6, num_kv_heads=2, head_dim=7, value_head_dim=11)
    step = sizes.flops(13, 1, 17, causal=True)
    assert step == (2 * 13 * (42 + 14 + 22 + 66), 2 * 42 * 17, 2 * 66 * 17)
    causal = sizes.flops(13, 17, causal=True)
    assert causal.scores == 2 * 42 * (17 * 18 // 2)
    assert causal.weighted_sum == 2 * 66 * (17 * 18 // 2)


@pytest.mark.parametrize(
    ("num_kv_heads", "expected"), [(32, 1_073_741_824), (8, 268_435_456), (1, 33_554_432)]
)
def test_cache_bytes_of_the_published_example(num_kv_heads: int, expected: int) -> None:
    sizes = HeadLayout(num_heads=32, num_kv_heads=num_kv_heads, head_dim=128)
    assert sizes.kv_cache_bytes(layers=32, tokens=2048, bytes_per_element=2) == expected


# Bytes per token measured on the real caches of these models (2-byte elements); sizes are num_heads,
# num_kv_heads, head_dim, value_head_dim.
@pytest.mark.parametrize(
    ("layers", "sizes", "expected"),
    [
        pytest.param(12, (12, 12, 64, 64), 36_864, id="GPT-2"),
        pytest.param(32, (32, 8, 128, 128), 131_072, id="Llama-3.1-8B"),
        pytest.param(28, (16, 8, 128, 128), 114_688, id="Qwen3-0.6B"),
        pytest.param(32, (71, 1, 64, 64), 8_192, id="Falcon-7B"),
        pytest.param(30, (9, 3, 64, 64), 23_040, id="SmolLM2-135M"),
        pytest.param(9, (64, 4, 192, 128), 23_040, id="MiMo-V2-Flash, full layers"),
    ],
)
def test_cache_bytes_per_token_of_real_models(
    layers: int, sizes: tuple[int, int, int, int], expected: int
) -> None:
    num_heads, num_kv_heads, head_dim, value_head_dim = sizes
    model = HeadLayout(
        num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim, value_head_dim=value_head_dim
    )
    assert model.kv_cache_bytes(layers=layers, tokens=1, bytes_per_element=2) == expected


def test_cache_bytes_grow_with_each_factor_alone() -> None:
    sizes = HeadLayout(num_heads=6, num_kv_heads=3, head_dim=7, value_head_dim=11)
    factors = {"layers": 2, "tokens": 5, "batch": 13, "bytes_per_element": 4}
    whole = sizes.kv_cache_bytes(**factors)
    assert whole == 2 * 5 * 13 * 4 * 3 * (7 + 11)
    for name, factor in factors.items():
        assert Fraction(whole, sizes.kv_cache_bytes(**factors | {name: 1})) == factor


@pytest.mark.parametrize(
    ("num_heads", "d_model", "mend"),
    [
        (7, 512, r"use 4 \(head_dim 128\) or 8 \(head_dim 64\)"),
        (600, 512, r"use 512 \(head_dim 1\)"),
        (2, 7, r"use 1 \(head_dim 7\) or 7 \(head_dim 1\)"),
        (10**9, 2**31 - 2, r"use 715827882 \(head_dim 3\) or 1073741823 \(head_dim 2\)"),
    ],
)
def test_a_head_count_that_does_not_divide_is_refused_with_its_neighbours(
    num_heads: int, d_model: int, mend: str
) -> None:
    message = (
        f"^num_heads={num_heads} does not divide d_model={d_model}; pass head_dim explicitly, or {mend}$"
    )
    with pytest.raises(ArgumentError, match=message):
        HeadLayout.of_width(d_model, num_heads)


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "mend"),
    [
        (8, 3, "use 1, 2, 4 or 8"),
        (8, 16, "use 1, 2, 4 or 8"),
        (1, 2, "use 1"),
        (5040, 59, "the nearest that do are 35, 36, 40, 42, 45, 48, 56, 60, 63, 70, 72 or 80"),
    ],
)
def test_kv_heads_that_do_not_divide_are_refused_with_those_that_do(
    num_heads: int, num_kv_heads: int, mend: str
) -> None:
    message = f"^num_kv_heads={num_kv_heads} does not divide num_heads={num_heads}; {mend}$"
    with pytest.raises(ArgumentError, match=message):
        HeadLayout(num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=7)


BAD_SIZES = [
    (0, "=0 must be at least 1"),
    (-3, "=-3 must be at least 1"),
    (True, "=True is a bool; pass an integer"),
    (4.0, "=4.0 is a float; pass an integer"),
    ("4", "='4' is a str; pass an integer"),
    (2**31, "=2147483648 is too large; the largest allowed is 2147483647"),
    pytest.param(10**5000, r"=\(a number of 16610 bits\) is too large", id="5001 digits"),
]


@pytest.mark.parametrize("name", ["num_heads", "num_kv_heads", "head_dim", "value_head_dim"])
@pytest.mark.parametrize(("size", "message"), BAD_SIZES)
def test_sizes_that_are_no_counts_are_refused_by_name(name: str, size: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{name}{message}"):
        HeadLayout(**{"num_heads": 4, "head_dim": 7} | {name: size})


@pytest.mark.parametrize("name", ["layers", "tokens", "batch", "bytes_per_element"])
def test_cache_factors_are_checked(name: str) -> None:
    factors = {"layers": 2, "tokens": 5, "batch": 3, "bytes_per_element": 2}
    with pytest.raises(ArgumentError, match=f"^{name}=0 must be at least 1"):
        HeadLayout(num_heads=4, head_dim=7).kv_cache_bytes(**factors | {name: 0})


def test_lengths_and_widths_are_checked() -> None:
    sizes = HeadLayout(num_heads=4, head_dim=7)
    with pytest.raises(ArgumentError, match=r"^seq_len=0 must be at least 1"):
        sizes.query_key_products(0)
    with pytest.raises(ArgumentError, match=r"^kv_len=-1 must be at least 1"):
        sizes.flops(28, 3, -1)
    with pytest.raises(ArgumentError, match=r"^d_model=2\.5 is a float"):
        sizes.projection_weights(2.5)
    with pytest.raises(ArgumentError, match=r"^d_model=0 must be at least 1"):
        HeadLayout.of_width(0, 1)


@pytest.mark.parametrize("head", [-1, 6, True, 1.0])
def test_heads_that_do_not_exist_are_refused(head: object) -> None:
    sizes = HeadLayout(num_heads=6, num_kv_heads=2, head_dim=7)
    with pytest.raises(ArgumentError, match=r"^head=.*(does not exist; there is 0 to 5|pass an integer)$"):
        sizes.kv_head_of(head)


def test_kv_heads_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"^kv_head=2 does not exist; there is 0 to 1$"):
        HeadLayout(num_heads=6, num_kv_heads=2, head_dim=7).query_heads_of(2)
    with pytest.raises(ArgumentError, match=r"^kv_head=1 does not exist; there is only 0$"):
        HeadLayout(num_heads=6, num_kv_heads=1, head_dim=7).query_heads_of(1)
