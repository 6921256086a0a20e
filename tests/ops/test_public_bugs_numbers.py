"""Faults that users have reported of numbers and gradients, each with the right value on a small input.

`repository#n` is an issue or pull request on GitHub. What belongs to the module is in `tests/nn`.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from headwise import ops
from headwise.evidence import Collect
from headwise.masks import Causal, Packed

from ..naive import gradients
from .ways import Way, differentiable_ways, every_way, over, weights_of

LOWEST = torch.finfo(torch.float32).min


def zeros(*shape: int) -> Tensor:
    return torch.zeros(shape)


# --- numbers


@every_way
def test_float16_scores_past_65504_are_exact(way: Way) -> None:
    # pytorch#60939, #110505: q.k overflowed to NaN
    large, value = torch.full((1, 1, 2, 64), 300.0).half(), torch.tensor([1.0, 3.0]).half()
    found = way(large, large, value.reshape(1, 1, 2, 1).expand(1, 1, 2, 64)).output
    assert (found == 2.0).all()


@every_way
def test_minus_1e9_in_float16_input_hides_what_it_would_in_float32(way: Way) -> None:
    # flax#982, keras PR#17571, gpt-2 PR#122: the constant overflowed float16
    bias = torch.tensor([[0.0, -1e9]])
    found = weights_of(way, torch.randn(1, 1, 1, 4).half(), torch.randn(1, 1, 2, 4).half(), mask=bias)
    assert found.flatten().tolist() == [1.0, 0.0]


@every_way
def test_a_softcap_does_not_raise_hidden_scores(way: Way) -> None:
    # onnx#7865, onnxruntime PR#28379: -inf became -cap, and the hidden key got 0.2689
    value = torch.tensor([10.0, 1000.0]).reshape(1, 1, 2, 1)
    for mask in (torch.tensor([[True, False]]), torch.tensor([[0.0, -torch.inf]])):
        found = way(zeros(1, 1, 1, 1), zeros(1, 1, 2, 1), value, mask=mask, softcap=1.0)
        assert found.output.item() == 10.0


@every_way
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_one_key_returns_its_value_whatever_its_score(way: Way, dtype: torch.dtype) -> None:
    # pytorch#121558: bfloat16 inputs of 133120 gave NaN
    large = torch.full((1, 1, 1, 8), 133120.0, dtype=dtype)
    value = torch.randn(1, 1, 1, 8).to(dtype)
    assert torch.equal(way(large, large, value).output, value)


@every_way
@pytest.mark.parametrize("mask", [Causal("upper_left"), torch.tensor([[True, False], [True, False]])])
@pytest.mark.parametrize("poison", [torch.nan, torch.inf])
def test_unused_cache_slots_may_hold_anything(way: Way, mask: Causal | Tensor, poison: float) -> None:
    # pytorch#101967, flash-attention#1745, #2374: 0 x NaN in hidden keys and values poisoned the output
    query, key, value = torch.randn(1, 1, 2, 4), torch.randn(1, 1, 2, 4), torch.randn(1, 1, 2, 4)
    key[:, :, 1], value[:, :, 1] = poison, poison
    found = way(query, key, value, mask=mask).output
    assert torch.equal(found[:, :, 0], value[:, :, 0])


@every_way
@pytest.mark.parametrize("kv_len", [1, 4, 40])
def test_nan_in_is_nan_out_and_never_zero(way: Way, kv_len: int) -> None:
    # pytorch#141128: one release turned NaN into 0; torch 2.13 still does for a NaN query and few keys
    query, key, value = torch.randn(1, 1, 3, 8), torch.randn(1, 1, kv_len, 8), torch.randn(1, 1, kv_len, 8)
    query[:, :, 1] = torch.nan
    found = way(query, key, value).output
    assert found[:, :, 1].isnan().all()
    assert found[:, :, [0, 2]].isfinite().all()


@over(["torch", "plain torch", "cpu"])
def test_scores_that_overflow_are_nan_and_never_zero(way: Way) -> None:
    # found on torch 2.13: the fused kernel returns 0 for them where there are few keys
    query, key = torch.full((1, 1, 2, 8), 1e20), torch.full((1, 1, 4, 8), 1e20)
    assert way(query, key, torch.randn(1, 1, 4, 8)).output.isnan().all()


def test_observed_weights_are_those_before_dropout_and_sum_to_one() -> None:
    # pytorch#42929, #27968: returned weights summed to more than 1 in training
    made = [torch.randn(1, 2, 3, 4) for _ in range(3)]
    weights = ops.observe(*made, collect=Collect(weights=True)).evidence.weights
    assert weights is not None
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 2, 3))


@every_way
def test_empty_tensors_crash_nothing(way: Way) -> None:
    # pytorch#141218, #174939, flash-attention PR#2470, pytorch PR#195812: SIGFPE or abort
    def attend(batch: int, seq_len: int, kv_len: int) -> ops.AttentionResult:
        key = torch.randn(batch, 2, kv_len, 4)
        return way(torch.randn(batch, 2, seq_len, 4), key, key)

    assert attend(0, 3, 5).output.shape == (0, 2, 3, 4)
    assert attend(1, 0, 5).output.shape == (1, 2, 0, 4)
    assert (attend(1, 3, 0).output == 0).all()
    assert (attend(1, 3, 0).logsumexp == -torch.inf).all()


@every_way
def test_packed_sequences_do_not_see_each_other(way: Way) -> None:
    # pytorch#153472, #130196, #177378: jagged inputs failed, or attended across sequences
    made = [torch.randn(1, 2, 7, 4) for _ in range(3)]
    found = way(*made, mask=Packed([3, 4]) & Causal()).output
    for rows in (slice(0, 3), slice(3, 7)):
        alone = way(*(tensor[:, :, rows] for tensor in made), mask=Causal()).output
        torch.testing.assert_close(found[:, :, rows], alone)


@pytest.mark.parametrize(("impl", "path"), [("cpu", "kernel"), ("torch", "fused")])
def test_attention_can_be_differentiated_twice(impl: Any, path: str) -> None:
    # pytorch#116350, #181177: "derivative is not implemented" for the fused kernel
    made = [torch.randn(1, 1, 3, 4, requires_grad=True) for _ in range(3)]
    assert ops.choose(*made, impl=impl).path == path
    (first,) = torch.autograd.grad(ops.attention(*made, impl=impl).square().sum(), made[0], create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), made[0])
    assert second.abs().sum() > 0


# --- found while these tests were made; no public report known


@differentiable_ways
@pytest.mark.parametrize("size", [-1e6, -1e9, LOWEST])
def test_gradients_of_a_row_hidden_by_a_large_number_are_no_multiple_of_the_right_ones(
    way: Way, size: float
) -> None:
    # torch's fused CPU kernel: value gradients of 1.0 a key for 0.25, since it takes weights as exp(s - lse)
    bias = zeros(4, 4)
    bias[1] = size
    made = zeros(1, 2, 4, 8), zeros(1, 2, 4, 8), torch.randn(1, 2, 4, 8)
    upstream = zeros(1, 2, 4, 8)
    upstream[:, :, 1] = 1.0
    found = gradients(lambda *leaves: way(*leaves, mask=bias).output, list(made), upstream)
    assert torch.equal(found[2], torch.full((1, 2, 4, 8), 0.25))
