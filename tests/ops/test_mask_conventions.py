"""The conventions of masks, by the way of every path; of what is hidden `test_hidden_conventions` tells."""

import pytest
import torch

from headwise.errors import ArgumentError
from headwise.masks import Causal, Dense, Lengths, Window

from ..attention_cases import tensors
from ..naive import gradients, naive_attention
from .ways import Way, differentiable_ways, every_way, every_way_in_float64, weights_of


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
