"""`torch.vmap` where the kernel computes: each element has the bits that it has alone."""

from typing import Any

import pytest
import torch
from torch import Tensor

from headwise import ops
from headwise.masks import Causal, Dense, Lengths

from ..attention_cases import tensors

COUNT = 3


def drawn(name: str, batch: int) -> Tensor:
    match name:
        case "boolean":
            return torch.randn(batch, 5, 7) < 0.8
        case "bias":
            return torch.randn(1, 6, 1, 7)
        case "whole bias":
            return torch.randn(batch, 6, 5, 7)
        case _:
            made = tensors("randn", batch=batch, value_head_dim=13, seed=int(torch.randint(99, ())))
            return made[("query", "key", "value").index(name)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", ["bias", "whole bias"])
@pytest.mark.parametrize("batch", [1, 2])  # what has one batch element is mapped without a copy
def test_vmap_over_each_argument_is_a_loop_to_the_last_bit(batch: int, bias: str, dtype: torch.dtype) -> None:
    names = ("query", "key", "value", bias, "boolean")

    def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, boolean: Tensor) -> Any:
        mask = Causal() & Lengths([6, 7][:batch]) & Dense(boolean, axes="bqk")
        found = ops.attention_with_logsumexp(query, key, value, mask=mask, bias=bias, impl="cpu")
        loss = (
            found.output.square().sum() + found.logsumexp.masked_fill(found.logsumexp == -torch.inf, 0).sum()
        )
        return loss, tuple(found)

    derived = torch.func.grad(attend, argnums=(0, 1, 2), has_aux=True)
    for mapped in (*((name,) for name in names), names):
        axes = tuple(0 if name in mapped else None for name in names)
        arguments = []
        for name in names:
            parts = [drawn(name, batch) for _ in range(COUNT if name in mapped else 1)]
            whole = torch.stack(parts) if name in mapped else parts[0]
            arguments.append(whole.to(dtype) if whole.is_floating_point() else whole)
        gradients, results = torch.vmap(derived, in_dims=axes)(*arguments)
        for place in range(COUNT):
            pairs = zip(arguments, axes, strict=True)
            alone = derived(*(each if axis is None else each[place] for each, axis in pairs))
            for one, other in zip((*gradients, *results), (*alone[0], *alone[1]), strict=True):
                assert torch.equal(one[place], other), mapped
