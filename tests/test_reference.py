"""The reference is held to values made by hand and to torch's math attention in float64."""

import math

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from headwise import reference
from headwise.masks import Causal, Dense, Lengths

from .attention_cases import KINDS, all_masks, tensors


def two_keys(first: float, second: float) -> dict[str, np.ndarray]:
    """Return a query of 1 and two keys with the scores `first` and `second`; the values are 10 and 100."""
    return {
        "query": np.ones((1, 1, 1, 1)),
        "key": np.array([first, second]).reshape(1, 1, 2, 1),
        "value": np.array([10.0, 100.0]).reshape(1, 1, 2, 1),
    }


def test_two_keys_by_hand() -> None:
    found = reference.attention(**two_keys(math.log(3), 0.0))
    np.testing.assert_allclose(found.weights, [[[[0.75, 0.25]]]], rtol=1e-15)
    np.testing.assert_allclose(found.output, [[[[32.5]]]], rtol=1e-15)
    np.testing.assert_allclose(found.logsumexp, [[[math.log(4)]]], rtol=1e-15)


def test_scale_then_softcap_then_bias_then_sink_then_gate_by_hand() -> None:
    found = reference.attention(
        **two_keys(1.0, -2.0),
        scale=0.5,
        softcap=3.0,
        bias=np.array([[0.25, 4.0]]),
        sinks=[1.5],
        head_gates=[-2.0],
    )
    scores = [3 * math.tanh(0.5 / 3) + 0.25, 3 * math.tanh(-1.0 / 3) + 4.0]
    denominator = sum(math.exp(score) for score in scores) + math.exp(1.5)
    weights = [math.exp(score) / denominator for score in scores]
    np.testing.assert_allclose(found.weights, [[[weights]]], rtol=1e-14)
    np.testing.assert_allclose(found.logsumexp, [[[math.log(denominator)]]], rtol=1e-14)
    np.testing.assert_allclose(found.output, [[[[-2 * (10 * weights[0] + 100 * weights[1])]]]], rtol=1e-14)


def test_scale_is_head_dim_to_the_minus_one_half() -> None:
    ones = np.ones((1, 1, 1, 64))
    assert reference.attention(ones, ones, ones).logsumexp == pytest.approx(8.0)


@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(3, 3), (6, 3), (8, 2), (7, 1)])
def test_query_heads_of_a_group_stand_together(num_heads: int, num_kv_heads: int) -> None:
    key = np.zeros((1, num_kv_heads, 2, 5))
    value = np.broadcast_to(np.arange(num_kv_heads)[:, None, None], (1, num_kv_heads, 2, 5))
    found = reference.attention(np.zeros((1, num_heads, 1, 5)), key, value).output[0, :, 0, 0]
    assert found.tolist() == [head // (num_heads // num_kv_heads) for head in range(num_heads)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mask_name", all_masks(2, 6, 5, 7))
def test_equals_torch_math_attention_in_float64(mask_name: str, kind: str) -> None:
    query, key, value = tensors(kind, dtype=torch.float64, value_head_dim=13)
    mask = all_masks(2, 6, 5, 7)[mask_name]
    visible, added = reference.visible_and_bias(mask, None, reference.masks.Sizes(2, 6, 5, 7))
    added = torch.from_numpy(np.where(visible, added, -np.inf))
    with sdpa_kernel(SDPBackend.MATH):
        expected = scaled_dot_product_attention(query, key, value, attn_mask=added, enable_gqa=True)
    found = reference.attention(query.numpy(), key.numpy(), value.numpy(), mask=mask)
    np.testing.assert_allclose(found.output, expected.numpy(), rtol=0, atol=1e-13)
    np.testing.assert_allclose((found.weights * ~visible).sum(), 0.0)
    seen = visible.any(-1)
    np.testing.assert_allclose(found.weights.sum(-1), seen.astype(float), rtol=1e-14)


def test_weights_and_logsumexp_agree() -> None:
    query, key, value = (tensor.numpy() for tensor in tensors("peaked", dtype=torch.float64))
    found = reference.attention(query, key, value, mask=Causal())
    scores = 11**-0.5 * query @ key.repeat(2, axis=1).swapaxes(2, 3)
    seen = found.weights > 0
    expected = (scores - found.logsumexp[..., None])[seen]
    np.testing.assert_allclose(np.log(found.weights[seen]), expected, atol=1e-12)


def test_a_row_that_sees_no_key_is_zero_whatever_it_holds() -> None:
    query = np.full((2, 1, 1, 3), np.nan)
    query[1] = 1.0
    found = reference.attention(query, np.ones((2, 1, 2, 3)), np.ones((2, 1, 2, 3)), mask=Lengths([0, 1]))
    assert found.output.tolist() == [[[[0.0] * 3]], [[[1.0] * 3]]]
    assert found.logsumexp[0] == -np.inf
    assert found.weights.tolist() == [[[[0.0, 0.0]]], [[[1.0, 0.0]]]]


def test_hidden_keys_and_values_are_never_touched_and_visible_nan_is_shown() -> None:
    query, key, value = (tensor.numpy() for tensor in tensors("randn", seq_len=7))
    clean = reference.attention(query, key, value, mask=Causal())
    key[:, :, 4], value[:, :, 5] = np.nan, np.inf
    found = reference.attention(query, key, value, mask=Causal())
    np.testing.assert_array_equal(found.output[:, :, :4], clean.output[:, :, :4])
    assert np.isnan(found.output[:, :, 4:]).all()


@pytest.mark.parametrize(
    "size", [-1e9, float(np.finfo(np.float32).min), float(np.finfo(np.float64).min), 1e30]
)
def test_a_bias_of_any_size_keeps_the_softmax_exact(size: float) -> None:
    found = reference.attention(**two_keys(math.log(3), 0.0), bias=np.full((1, 2), size))
    np.testing.assert_allclose(found.weights, [[[[0.75, 0.25]]]], rtol=1e-15)
    assert found.logsumexp == pytest.approx(size)


def test_a_sink_outweighs_keys_with_a_huge_negative_bias() -> None:
    found = reference.attention(**two_keys(1.0, 2.0), bias=np.full((1, 2), -1e30), sinks=[0.7])
    assert found.weights.tolist() == [[[[0.0, 0.0]]]]
    assert found.logsumexp == pytest.approx(0.7)


def test_minus_infinity_hides_in_a_mask_and_in_a_bias_alike() -> None:
    hiding = np.array([[-np.inf, 0.5]])
    as_mask = reference.attention(**two_keys(1.0, 2.0), mask=hiding)
    as_bias = reference.attention(**two_keys(1.0, 2.0), bias=hiding)
    as_dense = reference.attention(**two_keys(1.0, 2.0), bias=Dense(hiding))
    assert as_mask.output == as_bias.output == as_dense.output == 100.0
    assert as_mask.logsumexp == as_bias.logsumexp == as_dense.logsumexp == 2.5


def test_no_keys_no_queries_and_no_batch() -> None:
    def shapes(batch: int, seq_len: int, kv_len: int) -> reference.ReferenceResult:
        key = np.ones((batch, 1, kv_len, 3))
        return reference.attention(np.ones((batch, 2, seq_len, 3)), key, key)

    assert shapes(0, 5, 7).output.shape == (0, 2, 5, 3)
    assert shapes(2, 0, 7).output.shape == (2, 2, 0, 3)
    assert (shapes(2, 5, 0).output == 0).all()
    assert (shapes(2, 5, 0).logsumexp == -np.inf).all()


def test_weights_sum_to_1_however_large_the_scores_are() -> None:
    query, key = np.full((1, 1, 1, 1), 1e15), np.full((1, 1, 2, 1), -1e15)
    value = np.array([1.0, 2.0]).reshape(1, 1, 2, 1)
    assert reference.attention(query, key, value).output.item() == 1.5
