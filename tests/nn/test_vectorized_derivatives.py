"""Both layers where derivatives of many outputs are taken at once, by the older of torch's two maps."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.functional import hessian, jacobian

from headwise.masks import Causal
from headwise.nn import MultiHeadAttention
from headwise.nn.compat import TorchMultiheadAttention
from headwise.rope import Rope

WIDTH, HEADS = 8, 4


class Ours(MultiHeadAttention):
    """With every option, called with one tensor."""

    def __init__(self, **more: Any) -> None:
        options: dict[str, Any] = {"rope": Rope(), "qk_norm": True, "window": 3, "softcap": 5.0}
        super().__init__(WIDTH, HEADS, num_kv_heads=2, sinks=True, **options, **more)

    def forward(self, given: Tensor) -> Tensor:
        return super().forward(given, mask=Causal())


class StandIn(TorchMultiheadAttention):
    """Called with one tensor; the weights stand behind the output."""

    def __init__(self, **more: Any) -> None:
        super().__init__(WIDTH, HEADS, batch_first=True, **more)

    def forward(self, given: Tensor) -> Tensor:
        return torch.cat(super().forward(given, given, given, is_causal=True), dim=-1)


class StandInWithoutWeights(StandIn):
    """Called with one tensor; no weights are asked for."""

    def forward(self, given: Tensor) -> Tensor:
        return TorchMultiheadAttention.forward(self, given, given, given, need_weights=False)[0]


Kind = type[Ours] | type[StandIn]
each_kind = pytest.mark.parametrize("kind", [Ours, StandIn, StandInWithoutWeights])


def drawn(kind: Kind, **options: Any) -> nn.Module:
    layer = kind(**options)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)
    return layer


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # by torch itself
@each_kind
@pytest.mark.parametrize("strategy", ["reverse-mode", "forward-mode"])
@pytest.mark.parametrize("batch", [1, 2])
def test_vectorized_they_are_those_taken_one_by_one(batch: int, strategy: str, kind: Kind) -> None:
    layer, given = drawn(kind, dtype=torch.float64), torch.randn(batch, 4, WIDTH, dtype=torch.float64)
    found = jacobian(layer, given, vectorize=True, strategy=strategy)
    torch.testing.assert_close(found, jacobian(layer, given))

    def loss(given: Tensor) -> Tensor:
        return layer(given).square().sum()

    found = hessian(loss, given, vectorize=True, outer_jacobian_strategy=strategy)
    torch.testing.assert_close(found, hessian(loss, given))


@each_kind
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_parameters_have_the_gradients_of_each_upstream(dropout: float, kind: Kind) -> None:
    for batch in (1, 2):
        layer, given = drawn(kind, dropout=dropout), torch.randn(batch, 4, WIDTH)
        output, parameters = layer(given), list(layer.parameters())
        stack = torch.randn(3, *output.shape)
        found = torch.autograd.grad(output, parameters, stack, is_grads_batched=True, retain_graph=True)
        for place, upstream in enumerate(stack):
            alone = torch.autograd.grad(output, parameters, upstream, retain_graph=True)
            for one, other in zip(found, alone, strict=True):
                torch.testing.assert_close(one[place], other, rtol=1e-4, atol=1e-5)
