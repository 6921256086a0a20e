import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from headwise import ops
from headwise.masks import Causal, Lengths, Window

from ..attention_cases import KINDS, all_masks, tensors
from ..naive import gradients, naive_attention
from ..tolerance import assert_within_rule
from .ways import DIFFERENTIABLE, WAYS, Way

differentiable_ways = pytest.mark.parametrize(
    "way", [WAYS[name] for name in DIFFERENTIABLE], ids=DIFFERENTIABLE
)
# In float64 naive torch is the oracle itself; gradcheck, below, is the judge there.
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@differentiable_ways
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mask_name", ["none", "causal", "boolean", "float", "lengths"])
def test_gradients_keep_the_tolerance_rule(way: Way, dtype: torch.dtype, kind: str, mask_name: str) -> None:
    made = list(tensors(kind, seq_len=17, kv_len=19, dtype=dtype))
    mask = all_masks(2, 6, 17, 19)[mask_name]
    upstream = torch.randn(2, 6, 17, 11).to(dtype)

    def naive(*leaves: Tensor) -> Tensor:
        return naive_attention(*leaves, mask=mask).output

    exact = gradients(naive, [tensor.double() for tensor in made], upstream.double())
    plain = gradients(naive, made, upstream)
    found = gradients(lambda *leaves: way(*leaves, mask=mask).output, made, upstream)
    for name, *each in zip(("query", "key", "value"), found, exact, plain, strict=True):
        assert_within_rule(*each, name=f"gradient of {name}")


@pytest.mark.parametrize("size", [10.0, 100.0])
def test_gradients_of_large_scores_keep_weights_that_sum_to_one(size: float) -> None:
    """torch's own fused backward is off here by as much as logsumexp was rounded."""
    query, key, value = tensors("randn", seq_len=61, kv_len=61, num_heads=3)
    upstream = torch.ones(2, 3, 61, 11)
    found = gradients(ops.attention, [size * query, size * key, value], upstream)
    torch.testing.assert_close(found[2].sum(2), torch.full((2, 3, 11), 61.0), rtol=2e-6, atol=0)


@differentiable_ways
def test_anomaly_detection_finds_no_nan_in_empty_rows(way: Way) -> None:
    mask = torch.eye(5, 7, dtype=torch.bool)
    mask[2] = False
    made = [tensor.requires_grad_() for tensor in tensors("randn")]
    with warnings.catch_warnings(), torch.autograd.set_detect_anomaly(True):
        warnings.simplefilter("ignore")  # that anomaly detection is on
        found = way(*made, mask=mask)
        (found.output.sum() + found.logsumexp.exp().sum()).backward()


def float64(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def problem(value_head_dim: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    return float64(2, 2, 2, 3), float64(2, 1, 5, 3), float64(2, 1, 5, value_head_dim)


@pytest.mark.parametrize("value_head_dim", [3, 1], ids=["fused", "plain"])
@pytest.mark.parametrize(
    "mask", [None, Causal(), Window(left=1) & Lengths([0, 5])], ids=["none", "causal", "two"]
)
def test_first_and_second_derivatives_are_those_of_the_function(value_head_dim: int, mask: Any) -> None:
    def attend(*leaves: Tensor) -> Tensor:
        return ops.attention(*leaves, mask=mask)

    assert gradcheck(attend, problem(value_head_dim))
    assert gradgradcheck(attend, problem(value_head_dim))


OPTIONS: dict[str, Callable[[], dict[str, Tensor]]] = {
    "bias of full shape": lambda: {"bias": float64(2, 2, 2, 5)},
    "bias per head": lambda: {"bias": float64(1, 2, 1, 5)},
    "bias per row": lambda: {"bias": float64(2, 1)},
    "float mask": lambda: {"mask": float64(2, 5)},
    "float mask and bias": lambda: {"mask": float64(2, 5), "bias": float64(1, 2, 5)},
    "sinks": lambda: {"sinks": float64(2)},
    "gates": lambda: {"head_gates": float64(2, 2)},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("value_head_dim", [3, 1], ids=["fused", "plain"])
def test_tensor_options_have_gradients(name: str, value_head_dim: int) -> None:
    options = OPTIONS[name]()

    def attend(query: Tensor, key: Tensor, value: Tensor, *given: Tensor) -> Tensor:
        return ops.attention(query, key, value, **dict(zip(options, given, strict=True)))

    assert gradcheck(attend, (*problem(value_head_dim), *options.values()))


def test_softcap_and_logsumexp_have_gradients() -> None:
    def attend(*leaves: Tensor) -> tuple[Tensor, ...]:
        return tuple(ops.attention_with_logsumexp(*leaves[:3], sinks=leaves[3], softcap=1.3, mask=Causal()))

    assert gradcheck(attend, (*problem(), float64(2)))


def test_a_bias_of_sixteen_bits_gets_its_gradient_in_sixteen_bits() -> None:
    bias = torch.randn(5, 7, dtype=torch.bfloat16, requires_grad=True)
    (found,) = torch.autograd.grad(ops.attention(*tensors("randn"), bias=bias).sum(), bias)
    assert found.dtype == torch.bfloat16
    exact = bias.detach().double().requires_grad_()
    made = [tensor.double() for tensor in tensors("randn")]
    (expected,) = torch.autograd.grad(ops.attention(*made, bias=exact, scale=11**-0.5).sum(), exact)
    torch.testing.assert_close(found.double(), expected, rtol=1e-2, atol=1e-3)


def test_function_transforms_find_the_same_gradient() -> None:
    query, key, value = tensors("randn")

    def loss(given: Tensor) -> Tensor:
        return ops.attention(given, key, value, mask=Causal()).square().sum()

    found = torch.func.grad(loss)(query)
    leaf = query.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(leaf), leaf)
    torch.testing.assert_close(found, expected)


def test_inputs_changed_after_the_forward_pass_are_noticed() -> None:
    made = [tensor.requires_grad_() for tensor in tensors("randn")]
    bias = torch.zeros(5, 7)
    found = ops.attention(*made, bias=bias)
    bias += 1.0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        found.sum().backward()


def test_inference_mode_works() -> None:
    with torch.inference_mode():
        made = tensors("randn")
        found = ops.attention(*made, mask=Causal())
    torch.testing.assert_close(found.clone(), ops.attention(*tensors("randn"), mask=Causal()))


def test_the_observed_evidence_has_no_gradient_and_the_output_has() -> None:
    made = [tensor.requires_grad_() for tensor in tensors("randn")]
    found = ops.observe(*made)
    assert found.output.requires_grad
    assert found.logsumexp.requires_grad
    assert not found.evidence.entropy.requires_grad
