"""Each line of the conventions' section "Masks" has a test here, by the way of every path."""

from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.errors import ArgumentError
from headwise.masks import Causal, Dense, Lengths, Window

from ..attention_cases import all_masks, tensors
from ..naive import gradients, naive_attention
from .ways import Way, differentiable_ways, every_way, every_way_in_float64, takes

# With a value of its own width the path is plain, otherwise it is fused where the numbers allow it.
both_paths = pytest.mark.parametrize("value_head_dim", [11, 13], ids=["fused", "plain"])


def weights_of(way: Way, query: Tensor, key: Tensor, **options: Any) -> Tensor:
    """Return the weights that `way` uses: its output where the value is the identity."""
    identity = torch.eye(key.shape[2], dtype=key.dtype).expand(*key.shape[:3], key.shape[2])
    return way(query, key, identity, **options).output


@every_way
def test_true_means_may_attend(way: Way) -> None:
    query, key, _ = tensors("randn", seq_len=3, kv_len=3)
    weights = weights_of(way, query, key, mask=torch.tensor([[True, False, False]] * 3))
    assert (weights == torch.tensor([1.0, 0.0, 0.0])).all()


@every_way
def test_masks_of_rank_2_3_and_4_broadcast(way: Way) -> None:
    query, key, value = tensors("randn")
    full = torch.rand(2, 6, 5, 7) < 0.6
    for mask, same in (
        (full[0, 0], full[:1, :1]),
        (full[:, 0], full[:, :1]),
        (full[0], full[:1]),  # (head, seq, kv), since batch is 2
        (full[:, 0, :1], full[:, :1, :1]),
        (full[:1, :, :, :1], full[:1, :, :, :1]),
    ):
        expected = naive_attention(query, key, value, mask=same.expand(2, 6, 5, 7)).output
        torch.testing.assert_close(way(query, key, value, mask=mask).output, expected)


@every_way
def test_an_ambiguous_rank_3_mask_is_refused_unless_wrapped(way: Way) -> None:
    made = tensors("randn", batch=3, num_heads=3)
    mask = torch.rand(3, 5, 7) < 0.6
    with pytest.raises(ArgumentError, match="first size 3 is equally batch and num_heads"):
        way(*made, mask=mask)
    for axes, same in (("bqk", mask[:, None]), ("hqk", mask[None])):
        expected = naive_attention(*made, mask=same.expand(3, 3, 5, 7)).output
        torch.testing.assert_close(way(*made, mask=Dense(mask, axes=axes)).output, expected)


@every_way
def test_causal_is_aligned_to_the_lower_right_and_can_be_to_the_upper_left(way: Way) -> None:
    for seq_len, kv_len, align, seen in (
        (2, 5, "lower_right", [4, 5]),
        (5, 2, "lower_right", [0, 0, 0, 1, 2]),
        (2, 5, "upper_left", [1, 2]),
        (5, 2, "upper_left", [1, 2, 2, 2, 2]),
    ):
        query, key, _ = tensors("randn", seq_len=seq_len, kv_len=kv_len)
        weights = weights_of(way, query, key, mask=Causal(align))
        assert ((weights > 0).sum(-1) == torch.tensor(seen)).all()


@every_way
def test_a_decoding_row_sees_the_whole_cache(way: Way) -> None:
    made = tensors("randn", seq_len=7)
    whole = way(*made, mask=Causal()).output
    for row in range(7):
        query, key, value = made[0][:, :, row : row + 1], made[1][:, :, : row + 1], made[2][:, :, : row + 1]
        torch.testing.assert_close(way(query, key, value, mask=Causal()).output, whole[:, :, row : row + 1])


@every_way
def test_window_counts_neighbours_and_window_of_n_counts_keys(way: Way) -> None:
    query, key, _ = tensors("randn", seq_len=7)
    seen = (weights_of(way, query, key, mask=Window(left=2, right=1)) > 0)[0, 0]
    assert seen.int().tolist()[3] == [0, 1, 1, 1, 1, 0, 0]
    seen = (weights_of(way, query, key, mask=Window.of(3)) > 0)[0, 0]
    assert seen.int().tolist()[3] == [0, 1, 1, 1, 0, 0, 0]


@every_way
def test_boolean_tensors_combine(way: Way) -> None:
    query, key, _ = tensors("randn")
    by_head, by_row, by_key = (torch.rand(shape) < 0.6 for shape in ((1, 6, 1, 7), (2, 1, 5, 1), (1, 7)))
    seen = weights_of(way, query, key, mask=Dense(by_head) & by_row & by_key) > 0
    assert torch.equal(seen, by_head & by_row & by_key)


@every_way
def test_masks_combine(way: Way) -> None:
    query, key, value = tensors("randn", seq_len=7)
    boolean = torch.rand(2, 1, 7, 7) < 0.7
    found = way(query, key, value, mask=Causal() & Lengths([4, 7]) & boolean).output
    both = torch.ones(7, 7, dtype=torch.bool).tril() & boolean
    both[0, :, :, 4:] = False
    torch.testing.assert_close(found, naive_attention(query, key, value, mask=both).output)


@every_way
@pytest.mark.parametrize("size", [-1e3, -1e6, -1e9, 1e9, torch.finfo(torch.float32).min])
def test_a_constant_bias_of_any_size_changes_no_weight(way: Way, size: float) -> None:
    made = tensors("peaked")
    expected = way(*made)
    for option in ("mask", "bias"):
        found = way(*made, **{option: torch.full((5, 7), size)})
        torch.testing.assert_close(found.output, expected.output)
        torch.testing.assert_close(found.logsumexp, expected.logsumexp + size)


@differentiable_ways
@pytest.mark.parametrize("size", [-1e3, -1e6, -1e9, torch.finfo(torch.float32).min])
def test_a_row_of_large_negative_bias_has_exact_gradients(way: Way, size: float) -> None:
    made = list(tensors("peaked"))
    upstream = torch.zeros(2, 6, 5, 11)
    upstream[:, :, 1] = 1.0
    bias = torch.zeros(5, 7)
    bias[1] = size
    found = gradients(lambda *leaves: way(*leaves, bias=bias).output, made, upstream)
    expected = gradients(lambda *leaves: way(*leaves).output, made, upstream)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    # Every row has weights that sum to 1: with upstream 1, each KV head's values get 2 query heads' worth.
    torch.testing.assert_close(found[2].sum(2), torch.full((2, 3, 11), 2.0))


@every_way
def test_two_biases_of_the_lowest_number_do_not_hide_together(way: Way) -> None:
    made = tensors("randn")
    lowest = torch.full((5, 7), torch.finfo(torch.float32).min)
    torch.testing.assert_close(way(*made, mask=lowest, bias=lowest).output, way(*made).output)


@every_way_in_float64
def test_not_even_in_float64_where_their_sum_is_infinite(way: Way) -> None:
    made = tensors("randn", dtype=torch.float64)
    lowest = torch.full((5, 7), torch.finfo(torch.float64).min, dtype=torch.float64)
    torch.testing.assert_close(way(*made, mask=lowest, bias=lowest).output, way(*made).output)


@every_way
def test_a_finite_bias_is_no_mask_and_minus_infinity_is(way: Way) -> None:
    made = tensors("randn")
    finite = torch.zeros(5, 7)
    finite[:, 3] = -1e9
    torch.testing.assert_close(way(*made, mask=finite).output, way(*made, mask=finite == 0).output)
    hidden = finite.masked_fill(finite < 0, -torch.inf)
    for option in ("mask", "bias"):
        torch.testing.assert_close(
            way(*made, **{option: hidden}).output, way(*made, mask=finite == 0).output, rtol=0, atol=0
        )


@every_way
@both_paths
def test_a_row_that_sees_nothing_is_exactly_zero(way: Way, value_head_dim: int) -> None:
    made = tensors("peaked", value_head_dim=value_head_dim)
    for name, mask in all_masks(2, 6, 5, 7).items():
        for sinks in (None, torch.randn(6)):
            if not takes(way, made[0], {"mask": mask, "sinks": sinks}):
                continue
            found = way(*made, mask=mask, sinks=sinks)
            empty = naive_attention(*made, mask=mask).logsumexp == -torch.inf
            assert (found.output[empty] == 0).all(), name
            assert torch.equal(found.logsumexp == -torch.inf, empty), name
            assert found.output.isfinite().all(), name


@differentiable_ways
@both_paths
def test_a_row_that_sees_nothing_has_gradient_zero_and_spoils_no_other(way: Way, value_head_dim: int) -> None:
    made = list(tensors("randn", value_head_dim=value_head_dim))
    mask = torch.ones(5, 7, dtype=torch.bool)
    mask[2] = False
    upstream = torch.randn(2, 6, 5, value_head_dim)
    found = gradients(lambda *leaves: way(*leaves, mask=mask).output, made, upstream)
    assert (found[0][:, :, 2] == 0).all()
    expected = gradients(lambda *leaves: naive_attention(*leaves, mask=mask).output, made, upstream)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@every_way
@both_paths
@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("poisoned", ["key", "value"])
@pytest.mark.parametrize("mask_name", ["causal", "lengths", "boolean", "float", "window"])
def test_what_is_hidden_is_never_read(
    *, way: Way, value_head_dim: int, poison: float, poisoned: str, mask_name: str
) -> None:
    query, key, value = tensors("randn", value_head_dim=value_head_dim)
    mask = all_masks(2, 6, 5, 7)[mask_name]
    clean = way(query, key, value, mask=mask).output
    bad_key = 5
    {"key": key, "value": value}[poisoned][:, :, bad_key] = poison
    found = way(query, key, value, mask=mask).output
    visible = naive_visible(query, key, mask)[..., bad_key]
    torch.testing.assert_close(found[~visible], clean[~visible])
    if poison != -torch.inf or poisoned == "value":
        assert (~found[visible].isfinite()).any(-1).all()


def naive_visible(query: Tensor, key: Tensor, mask: Any) -> Tensor:
    identity = torch.eye(key.shape[2]).expand(*key.shape[:3], key.shape[2])
    return naive_attention(query, torch.zeros_like(key), identity, mask=mask).output > 0


@every_way
@both_paths
@pytest.mark.parametrize("poisoned", ["key", "value"])
def test_nan_in_one_kv_head_reaches_the_query_heads_of_its_group_only(
    way: Way, value_head_dim: int, poisoned: str
) -> None:
    query, key, value = tensors("randn", value_head_dim=value_head_dim)
    clean = way(query, key, value, mask=Causal()).output
    {"key": key, "value": value}[poisoned][1, 1, 0] = torch.nan
    found = way(query, key, value, mask=Causal()).output
    assert found[1, 2:4].isnan().all()
    for heads in (slice(0, 2), slice(4, 6)):
        torch.testing.assert_close(found[:, heads], clean[:, heads])
    torch.testing.assert_close(found[0], clean[0])


@every_way
@both_paths
def test_a_bias_counts_where_it_is_seen_and_nowhere_else(way: Way, value_head_dim: int) -> None:
    made = tensors("randn", seq_len=7, value_head_dim=value_head_dim)
    clean = way(*made, mask=Causal()).output
    bias = torch.zeros(7, 7)
    bias[2, 5], bias[4, 1] = torch.nan, torch.nan  # hidden, seen
    found = way(*made, mask=Causal(), bias=bias).output
    assert found[:, :, 4].isnan().all()
    others = [0, 1, 2, 3, 5, 6]
    torch.testing.assert_close(found[:, :, others], clean[:, :, others])


@every_way
@both_paths
def test_infinities_of_both_signs_meet_only_in_rows_that_see_both(way: Way, value_head_dim: int) -> None:
    query, key, value = tensors("randn", seq_len=7, value_head_dim=value_head_dim)
    value[:, :, 2], value[:, :, 4] = torch.inf, -torch.inf
    found = way(query, key, value, mask=Window.of(3)).output
    assert found[:, :, :2].isfinite().all()
    assert (found[:, :, 2:4] == torch.inf).all()
    assert found[:, :, 4].isnan().all()
    assert (found[:, :, 5:] == -torch.inf).all()


@differentiable_ways
@both_paths
@pytest.mark.parametrize("poisoned", ["query", "key", "value"])
def test_what_is_hidden_reaches_no_gradient(way: Way, value_head_dim: int, poisoned: str) -> None:
    made = dict(
        zip(
            ("query", "key", "value"), tensors("randn", seq_len=7, value_head_dim=value_head_dim), strict=True
        )
    )
    upstream = torch.randn(2, 6, 7, value_head_dim)
    upstream[:, :, 5:] = 0.0
    mask = Causal() & (torch.arange(7) != 5)[:, None]  # row 5 sees nothing, so that its query is nobody's
    if poisoned != "query":
        mask = Lengths([5, 5])
    clean = gradients(lambda *leaves: way(*leaves, mask=mask).output, list(made.values()), upstream)
    made[poisoned][:, :, 5] = torch.nan
    found = gradients(lambda *leaves: way(*leaves, mask=mask).output, list(made.values()), upstream)
    for one, other in zip(found, clean, strict=True):
        torch.testing.assert_close(one, other)


@every_way
@both_paths
@pytest.mark.parametrize("kv_len", [3, 7, 65])  # torch's kernel treats few keys differently
@pytest.mark.parametrize("mask", [None, Causal(), Window(left=1)], ids=["unmasked", "causal", "window"])
def test_a_nan_query_is_nan_in_its_own_row_only(
    way: Way, value_head_dim: int, kv_len: int, mask: Any
) -> None:
    query, key, value = tensors("randn", seq_len=3, kv_len=kv_len, value_head_dim=value_head_dim)
    clean = way(query, key, value, mask=mask).output
    query[:, :, 1] = torch.nan
    found = way(query, key, value, mask=mask).output
    assert found[:, :, 1].isnan().all()
    torch.testing.assert_close(found[:, :, [0, 2]], clean[:, :, [0, 2]])


@every_way
@both_paths
def test_a_nan_query_that_sees_nothing_gives_zero(way: Way, value_head_dim: int) -> None:
    query, key, value = tensors("randn", value_head_dim=value_head_dim)
    query[:, :, 3] = torch.nan
    mask = torch.ones(5, 7, dtype=torch.bool)
    mask[3] = False
    assert (way(query, key, value, mask=mask).output[:, :, 3] == 0).all()


@every_way
@both_paths
def test_zero_sized_batch_query_and_keys(way: Way, value_head_dim: int) -> None:
    for sizes in ({"batch": 0}, {"seq_len": 0}, {"kv_len": 0}, {"seq_len": 0, "kv_len": 0}):
        for mask in (None, Causal(), torch.ones(1, 1, dtype=torch.bool)):
            for sinks in (None, torch.randn(6)):
                made = tensors("randn", value_head_dim=value_head_dim, **sizes)
                found = way(*made, mask=mask, sinks=sinks)
                expected = (sizes.get("batch", 2), 6, sizes.get("seq_len", 5))
                assert found.output.shape == (*expected, value_head_dim)
                assert (found.output == 0).all()
                assert found.logsumexp.shape == expected
                assert (found.logsumexp == -torch.inf).all()


@differentiable_ways
def test_zero_sizes_have_gradients(way: Way) -> None:
    for sizes in ({"batch": 0}, {"seq_len": 0}, {"kv_len": 0}):
        made = list(tensors("randn", **sizes))
        found = gradients(lambda *leaves: way(*leaves, mask=Causal()).output, made, torch.ones_like(made[0]))
        assert all((gradient == 0).all() for gradient in found)
