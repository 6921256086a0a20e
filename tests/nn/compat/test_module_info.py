"""PyTorch's own inputs for its `nn.MultiheadAttention`, given to ours."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.nn.compat import TorchMultiheadAttention

from .pairs import in_float64


@cache
def module_inputs(training: bool) -> list[Any]:
    with pytest.MonkeyPatch.context() as patch:
        # Importing torch's test code would forbid this process to set flags such as allow_tf32.
        patch.setattr(torch.backends, "disable_global_flags", lambda: None)
        from torch.testing._internal.common_modules import module_db  # noqa: PLC0415
    (info,) = [each for each in module_db if each.module_cls is nn.MultiheadAttention]
    return list(
        info.module_inputs_func(
            info, device="cpu", dtype=torch.float32, requires_grad=True, training=training
        )
    )


def made(kind: type[nn.MultiheadAttention], sample: Any, training: bool) -> nn.MultiheadAttention:
    torch.manual_seed(3)
    return kind(*sample.constructor_input.args, **sample.constructor_input.kwargs).train(training)


@pytest.mark.parametrize("training", [True, False])
def test_every_input_gives_torchs_numbers_and_its_reference(training: bool) -> None:
    samples = module_inputs(training)
    assert len(samples) == 64
    for number, sample in enumerate(samples):
        tensors, keywords = sample.forward_input.args, sample.forward_input.kwargs
        ours = made(TorchMultiheadAttention, sample, training)
        found = ours(*tensors, **keywords)
        by_reference = sample.reference_fn(ours, *tensors, **keywords)
        theirs = made(nn.MultiheadAttention, sample, training).double()
        exact = theirs(
            *map(in_float64, tensors), **{name: in_float64(each) for name, each in keywords.items()}
        )
        for one, other, expected in zip(found, by_reference, exact, strict=True):
            torch.testing.assert_close(one, other, msg=lambda text, number=number: f"input {number}: {text}")
            torch.testing.assert_close(
                one.double(), expected, rtol=1e-5, atol=1e-5, msg=lambda text, n=number: f"input {n}: {text}"
            )


@pytest.mark.parametrize("training", [True, False])
def test_every_input_has_torchs_gradients(training: bool) -> None:
    for number, sample in enumerate(module_inputs(training)):
        found, expected = (
            gradients(made(kind, sample, training), sample)
            for kind in (TorchMultiheadAttention, nn.MultiheadAttention)
        )
        assert found.keys() == expected.keys()
        for name, gradient in expected.items():
            torch.testing.assert_close(
                found[name], gradient, msg=lambda text, at=(number, name): f"input {at[0]}, {at[1]}: {text}"
            )


def gradients(module: nn.MultiheadAttention, sample: Any) -> dict[str, Tensor]:
    """Return the gradients of inputs and parameters in float64, by name."""
    module.double()
    names = ("query", "key", "value")
    tensors = [each.detach().double().requires_grad_() for each in sample.forward_input.args]
    output, weights = module(*tensors, **{k: in_float64(v) for k, v in sample.forward_input.kwargs.items()})
    loss = (output * torch.arange(9.0).view(3, 3)).sum() + (weights**2).sum()
    named = {**dict(zip(names, tensors, strict=True)), **dict(module.named_parameters())}
    return dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))


def test_strided_inputs_give_the_numbers_of_contiguous_ones() -> None:
    for sample in module_inputs(False):
        module = made(TorchMultiheadAttention, sample, False)
        tensors, keywords = sample.forward_input.args, sample.forward_input.kwargs
        spread = [torch.stack([each, each], dim=-1)[..., 0].detach() for each in tensors]
        assert not any(each.is_contiguous() for each in spread)
        for one, other in zip(module(*spread, **keywords), module(*tensors, **keywords), strict=True):
            torch.testing.assert_close(one, other)
