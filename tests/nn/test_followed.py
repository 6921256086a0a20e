"""Both layers under those who follow torch's operations: compilers, transforms, derivatives of any order."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, jvp, stack_module_state, vmap
from torch.utils.checkpoint import checkpoint

from headwise.evidence import Collect
from headwise.masks import Causal, Lengths
from headwise.nn import MultiHeadAttention
from headwise.nn.compat import TorchMultiheadAttention
from headwise.rope import Rope

WIDTH, HEADS = 24, 6
PADDING = torch.tensor([[False] * 5, [False, False, True, True, True]])


class Ours(MultiHeadAttention):
    """With every option, called with one tensor."""

    def __init__(self, width: int = WIDTH, heads: int = HEADS, **more: Any) -> None:
        super().__init__(
            width,
            heads,
            num_kv_heads=heads // 2,
            rope=Rope(),
            qk_norm=True,
            window=3,
            softcap=5.0,
            sinks=True,
            **more,
        )

    def forward(self, given: Tensor) -> Tensor:
        return super().forward(given, mask=Causal())


class StandIn(TorchMultiheadAttention):
    """Called with one tensor; the weights stand behind the output."""

    def __init__(self, width: int = WIDTH, heads: int = HEADS, **more: Any) -> None:
        super().__init__(width, heads, batch_first=True, **more)

    def forward(self, given: Tensor) -> Tensor:
        output, weights = super().forward(given, given, given, is_causal=True)
        return torch.cat([output, weights], dim=-1)


both = pytest.mark.parametrize("kind", [Ours, StandIn])
Kind = type[Ours] | type[StandIn]


@pytest.fixture(autouse=True)
def compiled_anew() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def drawn(layer: nn.Module) -> nn.Module:
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)
    return layer


@both
def test_compiled_whole_it_gives_the_output_and_the_gradients(kind: Kind) -> None:
    layer, given = drawn(kind()), torch.randn(2, 5, WIDTH)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for training in (True, False):
        found, expected = compiled(given), layer(given)
        torch.testing.assert_close(found, expected)
        if training:
            parameters = list(layer.parameters())
            one, other = (torch.autograd.grad((each**2).sum(), parameters) for each in (found, expected))
            for gradient, wanted in zip(one, other, strict=True):
                torch.testing.assert_close(gradient, wanted)
        torch._dynamo.reset()
        layer.eval().requires_grad_(False)


MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "none, mean": {"average_attn_weights": True},
    "padding": {"key_padding_mask": PADDING},
    "padding and causal": {"key_padding_mask": PADDING, "is_causal": True},
    "a text of padding": {"key_padding_mask": torch.tensor([[False] * 5, [True] * 5])},
    "float": {"attn_mask": torch.randn(5, 5, generator=torch.Generator().manual_seed(1))},
    "float that hides": {"attn_mask": torch.tensor([0.5, -torch.inf, 0.0, 1.0, -2.0]).repeat(5, 1)},
    "float that hides a row": {"attn_mask": torch.zeros(5, 5).index_fill(0, torch.tensor(2), -torch.inf)},
    "per head": {"attn_mask": torch.arange(5) > torch.arange(5)[:, None] + torch.arange(4)[:, None, None]},
}


@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
def test_compiled_the_stand_in_returns_its_weights_under_every_mask(masks: dict[str, Any]) -> None:
    layer, given = drawn(TorchMultiheadAttention(8, 2, batch_first=True)), torch.randn(2, 5, 8)
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    asked = {"average_attn_weights": False, **masks}
    found, expected = compiled(given, given, given, **asked), layer(given, given, given, **asked)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@both
def test_exported_for_any_length(kind: Kind) -> None:
    layer = drawn(kind()).eval()
    lengths = {"given": {1: torch.export.Dim("seq_len", min=2, max=64)}}
    exported = torch.export.export(layer, (torch.randn(2, 5, WIDTH),), dynamic_shapes=lengths).module()
    for seq_len in (2, 9, 33):
        given = torch.randn(2, seq_len, WIDTH)
        torch.testing.assert_close(exported(given), layer(given))


@both
def test_without_memory_the_shapes_are_known(kind: Kind) -> None:
    found = kind(device="meta")(torch.empty(2, 5, WIDTH, device="meta"))
    assert found.shape == kind()(torch.randn(2, 5, WIDTH)).shape
    assert found.is_meta


@both
def test_an_ensemble_is_mapped_over(kind: Kind) -> None:
    layers, given = [drawn(kind()) for _ in range(3)], torch.randn(2, 5, WIDTH)
    parameters, _ = stack_module_state(layers)
    found = vmap(lambda one: functional_call(layers[0], one, (given,)))(parameters)
    for one, layer in zip(found, layers, strict=True):
        torch.testing.assert_close(one, layer(given))


@both
def test_gradients_of_each_text_are_those_of_the_text_alone(kind: Kind) -> None:
    layer, given = drawn(kind(dtype=torch.float64)), torch.randn(3, 5, WIDTH, dtype=torch.float64)
    parameters = dict(layer.named_parameters())

    def loss(parameters: dict[str, Tensor], text: Tensor) -> Tensor:
        return (functional_call(layer, parameters, (text[None],)) ** 2).sum()

    found = vmap(grad(loss), (None, 0))(parameters, given)
    for place, text in enumerate(given):
        alone = torch.autograd.grad(loss(parameters, text), list(parameters.values()))
        for name, gradient in zip(parameters, alone, strict=True):
            torch.testing.assert_close(
                found[name][place], gradient, msg=lambda text, at=name: f"{at}: {text}"
            )


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # by torch itself
@both
def test_derivatives_forward_and_twice_backward(kind: Kind) -> None:
    # pytorch#116350, #181177, #128971: none for the fused kernel
    layer = drawn(kind(4, 2, dtype=torch.float64))
    given = torch.randn(1, 4, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer, [given], check_forward_ad=True)
    assert torch.autograd.gradgradcheck(layer, [given])
    along = torch.randn_like(given)
    _, found = jvp(layer, (given.detach(),), (along,))
    expected = torch.einsum("...bsd,bsd->...", jacrev(layer)(given.detach()), along)
    torch.testing.assert_close(found, expected)


@both
def test_a_checkpoint_drops_the_same_weights_again(kind: Kind) -> None:
    layer, given = drawn(kind(dropout=0.5)), torch.randn(2, 5, WIDTH)
    found: list[tuple[Tensor, ...]] = []
    ways: list[Callable[[], Tensor]] = [
        lambda: layer(given),
        lambda: checkpoint(layer, given, use_reentrant=False),
        lambda: torch.compile(layer, fullgraph=True, backend="aot_eager")(given),
    ]
    for way in ways:
        torch.manual_seed(7)
        found.append(torch.autograd.grad((way() ** 2).sum(), list(layer.parameters())))
    for plain, others in zip(found[0], zip(*found[1:], strict=True), strict=True):
        for other in others:
            torch.testing.assert_close(other, plain)


# torch warns of this wherever it goes on after a break in the graph.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_a_compiled_layer_can_be_observed() -> None:
    layer, given = MultiHeadAttention(WIDTH, HEADS), torch.randn(2, 5, WIDTH)
    compiled = torch.compile(layer, backend="eager")
    asked: dict[str, Any] = {"mask": Causal() & Lengths([5, 3]), "observe": Collect(top_k=2)}
    found, expected = compiled(given, **asked), layer(given, **asked)
    torch.testing.assert_close(found.output, expected.output)
    torch.testing.assert_close(found.evidence.entropy, expected.evidence.entropy, equal_nan=True)
