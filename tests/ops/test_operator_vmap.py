"""`torch.vmap` over each argument, and the transforms of torch.func in each other."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from headwise import ops
from headwise.masks import Causal, Dense, Lengths

from ..attention_cases import tensors
from ..naive import naive_attention

COUNT = 3
SHAPES = {
    "query": (2, 6, 5, 11),
    "key": (2, 3, 7, 11),
    "value": (2, 3, 7, 13),
    "boolean": (2, 5, 7),
    "bias": (1, 6, 1, 7),
    "whole bias": (2, 1, 5, 7),
    "sinks": (6,),
    "gates": (2, 6),
}
PLACES = tuple(SHAPES)
DIFFERENTIABLE = tuple(place for place, name in enumerate(SHAPES) if name != "boolean")


def attend(*given: Tensor) -> tuple[Tensor, Tensor]:
    query, key, value, boolean, bias, whole_bias, sinks, gates = given
    mask = Causal() & Lengths([6, 7]) & Dense(boolean, axes="bqk") & Dense(whole_bias, axes="bhqk")
    found = ops.attention_with_logsumexp(
        query, key, value, mask=mask, bias=bias, sinks=sinks, head_gates=gates
    )
    return tuple(found)


def loss(*given: Tensor) -> Tensor:
    output, logsumexp = attend(*given)
    return output.square().sum() + logsumexp.masked_fill(logsumexp == -torch.inf, 0.0).square().sum()


def made(*shape: int, name: str, dtype: torch.dtype) -> Tensor:
    return torch.rand(shape) < 0.8 if name == "boolean" else torch.randn(shape, dtype=dtype)


def mapped_arguments(mapped: tuple[str, ...], dtype: torch.dtype) -> tuple[list[Tensor], tuple[Any, ...]]:
    """Arguments, and the axis that each of those named `mapped` has more: before the first or behind it."""
    arguments: list[Tensor] = []
    axes: list[int | None] = []
    for place, (name, shape) in enumerate(SHAPES.items()):
        axis = min(place % 2, len(shape)) if name in mapped else None
        axes.append(axis)
        whole = shape if axis is None else (*shape[:axis], COUNT, *shape[axis:])
        arguments.append(made(*whole, name=name, dtype=dtype))
    return arguments, tuple(axes)


def one_by_one(function: Callable[..., Any], arguments: list[Tensor], axes: tuple[Any, ...]) -> list[Tensor]:
    found = []
    for place in range(COUNT):
        pairs = zip(arguments, axes, strict=True)
        found.append(function(*(each if axis is None else each.select(axis, place) for each, axis in pairs)))
    return [torch.stack(parts) for parts in zip(*found, strict=True)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mapped", [*((name,) for name in SHAPES), PLACES, ("query", "bias")], ids=str)
def test_vmap_over_each_argument_is_a_loop(mapped: tuple[str, ...], dtype: torch.dtype) -> None:
    arguments, axes = mapped_arguments(mapped, dtype)
    for function in (attend, torch.func.grad(loss, argnums=DIFFERENTIABLE)):
        expected = one_by_one(function, arguments, axes)
        for found, each in zip(torch.vmap(function, in_dims=axes)(*arguments), expected, strict=True):
            torch.testing.assert_close(found, each, rtol=1e-4, atol=1e-5)


def test_gradients_of_each_sample_are_those_of_a_loop() -> None:
    query, key, value = (tensor.flatten(0, 0) for tensor in tensors("randn", batch=4))
    weight = torch.randn(11, 11)

    def of_sample(weight: Tensor, *given: Tensor) -> Tensor:
        query, key, value = (tensor[None] for tensor in given)
        return ops.attention(query @ weight, key @ weight, value, mask=Causal()).square().sum()

    found = torch.vmap(torch.func.grad(of_sample), in_dims=(None, 0, 0, 0))(weight, query, key, value)
    samples = zip(query, key, value, strict=True)
    expected = torch.stack([torch.func.grad(of_sample)(weight, *sample) for sample in samples])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_gradients_go_through_vmap_and_vmap_through_vmap() -> None:
    arguments, axes = mapped_arguments(("query", "boolean", "sinks"), torch.float64)
    leaves = [each.requires_grad_() if each.is_floating_point() else each for each in arguments]
    output, logsumexp = torch.vmap(attend, in_dims=axes)(*leaves)
    variables = [each for each in leaves if each.requires_grad]
    found = torch.autograd.grad(output.square().sum() + logsumexp.nan_to_num(neginf=0.0).sum(), variables)
    stacked = one_by_one(attend, leaves, axes)
    whole = stacked[0].square().sum() + stacked[1].nan_to_num(neginf=0.0).sum()
    for one, other in zip(found, torch.autograd.grad(whole, variables), strict=True):
        torch.testing.assert_close(one, other)
    query, key, value = (torch.randn(2, 3, *shape, dtype=torch.float64) for shape in ((1, 2, 5, 4),) * 3)
    twice = torch.vmap(torch.vmap(lambda *given: ops.attention(*given, mask=Causal())))(query, key, value)
    flat = ops.attention(*(each.flatten(0, 2) for each in (query, key, value)), mask=Causal())
    torch.testing.assert_close(twice.flatten(0, 2), flat)


def small(*given: Tensor) -> Tensor:
    return ops.attention(*given, mask=Causal(), softcap=2.0)


def naive(*given: Tensor) -> Tensor:
    return naive_attention(*given, mask=Causal(), softcap=2.0).output


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # by torch itself
@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning")  # so too, by linearize
@pytest.mark.parametrize("transform", ["jacrev", "jacfwd", "hessian", "jacrev of jacrev", "jvp", "linearize"])
def test_transforms_of_torch_func_find_the_derivatives(transform: str) -> None:
    query, key, value = (torch.randn(1, 2, 3, 2, dtype=torch.float64) for _ in range(3))

    def derived(function: Callable[..., Tensor]) -> Any:
        def of_query(query: Tensor) -> Tensor:
            return function(query, key, value).square().sum((0, 1, 3))

        match transform:
            case "jvp":
                return torch.func.jvp(of_query, (query,), (key,))
            case "linearize":
                return torch.func.linearize(of_query, query)[1](key)
            case "jacrev of jacrev":
                return torch.func.jacrev(torch.func.jacrev(of_query))(query)
            case _:
                return getattr(torch.func, transform)(of_query)(query)

    torch.testing.assert_close(derived(small), derived(naive))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dropout_under_vmap_is_the_same_or_different_as_asked(dtype: torch.dtype) -> None:
    query, key, value = (tensor.to(dtype) for tensor in tensors("randn", seq_len=17, kv_len=19))
    queries = query.expand(COUNT, *query.shape)

    def attend(query: Tensor) -> Tensor:
        return ops.attention(query, key, value, dropout=0.5)

    same = torch.vmap(attend, randomness="same")(queries)
    assert torch.equal(same[0], same[1])
    different = torch.vmap(attend, randomness="different")(queries)
    assert not torch.equal(different[0], different[1])
    with pytest.raises(RuntimeError, match="vmap: called random operation while in randomness error mode"):
        torch.vmap(attend)(queries)


def test_dropout_under_vmap_is_differentiated_as_it_was_drawn() -> None:
    query, key, value = (torch.randn(COUNT, 1, 2, 3, 4, dtype=torch.float64) for _ in range(3))

    def attend(value: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return ops.attention(query, key, value, dropout=0.5).sum()

    torch.manual_seed(1)
    grads = torch.vmap(torch.func.grad(attend), randomness="different")(value, query, key)
    torch.manual_seed(1)
    outputs = torch.vmap(attend, randomness="different")(value, query, key)
    # The output is linear in the values.
    torch.testing.assert_close((grads * value).sum((1, 2, 3, 4)), outputs)
