"""Sums that are the same on any number of threads, and the gradient of a gate, which is one of them."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from headwise import ops
from headwise.masks import Causal
from headwise.ops.ordered_sums import spread, summed, summed_to

from ..attention_cases import tensors
from .bits import threads


@pytest.mark.parametrize(
    ("batch", "num_heads", "seq_len", "head_dim", "dtype"),
    [
        (1, 1, 20_011, 256, torch.float32),
        (1, 1, 70_001, 16, torch.float32),  # so many rows torch shares out among its threads
        (3, 1, 20_011, 16, torch.float32),  # and these, where a gate is for all of the batch
        (1, 1, 70_001, 16, torch.bfloat16),
    ],
)
def test_gradients_of_gates_do_not_hang_on_the_number_of_threads(
    batch: int, num_heads: int, seq_len: int, head_dim: int, dtype: torch.dtype
) -> None:
    query, key, value = (
        torch.randn(batch, num_heads, length, head_dim).to(dtype) for length in (seq_len, 5, 5)
    )
    upstream, given = torch.randn(query.shape).to(dtype), torch.randn(num_heads)

    def found(count: int) -> Tensor:
        gates = given.clone().requires_grad_()
        with threads(count):
            output = ops.attention(query, key, value, head_gates=gates, impl="cpu")
            return torch.autograd.grad(output, gates, upstream)[0]

    alone = found(1)
    assert all(torch.equal(found(count), alone) for count in range(2, 9))
    exact = (ops.attention(query, key, value).double() * upstream.double()).sum((0, 2, 3))
    assert (alone - exact).abs().item() < torch.finfo(dtype).eps * (query.numel() ** 0.5)


def test_gradients_of_sinks_do_not_hang_on_the_number_of_threads() -> None:
    """Where there are so many batch elements that torch shares their sum out among its threads."""
    query, key, value, upstream = torch.randn(4, 40_009, 1, 1, 3)
    given = torch.randn(1)

    def found(count: int) -> Tensor:
        sinks = given.clone().requires_grad_()
        with threads(count):
            output = ops.attention(query, key, value, sinks=sinks, impl="cpu")
            return torch.autograd.grad(output, sinks, upstream)[0]

    alone = found(1)
    assert all(torch.equal(found(count), alone) for count in range(2, 9))


def test_gradients_of_gates_for_several_upstreams_at_once() -> None:
    query, key, value = tensors("randn")
    gates = torch.randn(2, 6, requires_grad=True)
    output = ops.attention(query, key, value, mask=Causal(), head_gates=gates, impl="cpu")
    upstreams = torch.randn(3, *output.shape)

    def gradient(upstream: Tensor, **options: Any) -> Tensor:
        return torch.autograd.grad(output, gates, upstream, retain_graph=True, **options)[0]

    alone = torch.stack([gradient(one) for one in upstreams])
    torch.testing.assert_close(torch.vmap(gradient)(upstreams), alone)
    torch.testing.assert_close(gradient(upstreams, is_grads_batched=True), alone)


@pytest.mark.parametrize(("numbers", "shape"), [((2, 1, 1), (2, 3, 4)), ((1, 3), (5, 3)), ((2, 3), (2, 3))])
def test_what_is_spread_is_expanded_and_can_be_differentiated_again(
    numbers: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    given = torch.randn(numbers, dtype=torch.float64, requires_grad=True)

    def squared(given: Tensor) -> Any:
        return spread(given, shape) ** 2

    assert torch.equal(spread(given, shape), given.expand(shape))
    assert gradcheck(squared, (given,))
    assert gradgradcheck(squared, (given,))


def test_sums_are_added_in_float64_and_rounded_once() -> None:
    terms = torch.randn(3, 5, 2003) * torch.logspace(-3, 6, 2003)
    exact = torch.tensor([math.fsum(row.double().tolist()) for row in terms.transpose(0, 1).flatten(1)])
    assert torch.equal(summed(terms, 0, 2), exact)
    assert torch.equal(summed_to(terms, (1, 5, 1)), exact[None, :, None])
    assert summed_to(terms, terms.shape) is terms
    assert summed(terms.double(), 0, 2).dtype is torch.float64


def test_sums_of_what_is_not_finite_are_silent() -> None:
    large = torch.tensor([[3e38, 3e38], [torch.inf, -torch.inf], [torch.nan, 1.0]])
    assert summed(large, 1).tolist() == pytest.approx([torch.inf, torch.nan, torch.nan], nan_ok=True)
