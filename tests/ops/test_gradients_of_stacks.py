"""Gradients for a stack of upstreams at once: those that each has alone, by both of torch's maps.

One is `torch.vmap`, the other is behind `is_grads_batched=True` and `vectorize=True` of torch.autograd.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._vmap_internals import _vmap  # what is_grads_batched is made of
from torch.autograd.functional import hessian, jacobian
from torch.utils.flop_counter import FlopCounterMode

from headwise import ops
from headwise.masks import Causal, Lengths, Window
from headwise.ops import arguments
from headwise.ops.registered import ATTENTION, Terms

from ..attention_cases import tensors
from ..tolerance import assert_within_rule

COUNT = 3
Way = Callable[..., list[Tensor]]


def alone(
    outputs: Sequence[Tensor], leaves: Sequence[Tensor], stacks: Sequence[Tensor], **options: bool
) -> list[Tensor]:
    """Return the gradients of one upstream after the other, side by side."""
    found = [
        torch.autograd.grad(outputs, leaves, upstreams, retain_graph=True, **options)
        for upstreams in zip(*stacks, strict=True)
    ]
    return [torch.stack(parts) for parts in zip(*found, strict=True)]


def batched(
    outputs: Sequence[Tensor], leaves: Sequence[Tensor], stacks: Sequence[Tensor], **options: bool
) -> list[Tensor]:
    options = {"retain_graph": True, **options}
    return list(torch.autograd.grad(outputs, leaves, stacks, is_grads_batched=True, **options))


def by_vmap(
    outputs: Sequence[Tensor], leaves: Sequence[Tensor], stacks: Sequence[Tensor], **options: bool
) -> list[Tensor]:
    def gradients(*upstreams: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(outputs, leaves, upstreams, retain_graph=True, **options)

    return list(torch.vmap(gradients)(*stacks))


by_both_maps = pytest.mark.parametrize("at_once", [batched, by_vmap])

# dict[str, Any] for sizes of 2 or 1 batch elements, 6 heads, 5 queries and 7 keys, or of what `sizes` says.
OPTIONS: dict[str, Callable[[int, int, int, int], dict[str, Any]]] = {
    "nothing": lambda *_: {},
    "causal": lambda *_: {"mask": Causal()},
    "a window and an empty row": lambda batch, *_: {"mask": Window(2, 1) & Lengths([0, 4][:batch])},
    "boolean": lambda batch, _, rows, keys: {"mask": torch.randn(batch, 1, rows, keys) < 0.5},
    "a bias for all": lambda _, heads, rows, keys: {"bias": torch.randn(1, heads, rows, keys)},
    "a bias for each": lambda *sizes: {"bias": torch.randn(sizes)},
    "two biases": lambda _, heads, rows, keys: {
        "bias": torch.randn(1, heads, 1, keys),
        "mask": torch.randn(rows, keys),
    },
    "a number a row": lambda _, heads, rows, __: {"bias": torch.randn(rows, 1), "sinks": torch.randn(heads)},
    "sinks": lambda batch, heads, *_: {"sinks": torch.randn(heads), "mask": Lengths([0, 4][:batch])},
    "gates": lambda batch, heads, *_: {"head_gates": torch.randn(batch, heads), "mask": Causal()},
    "dropout": lambda *_: {"dropout": 0.4},
    "all": lambda _, heads, __, keys: {
        "bias": torch.randn(1, heads, 1, keys),
        "sinks": torch.randn(heads),
        "head_gates": torch.randn(heads),
        "softcap": 2.0,
        "dropout": 0.2,
        "mask": Causal(),
    },
}


class Problem:
    """A call, what it returned and the leaves it was made of."""

    def __init__(self, made: Sequence[Tensor], options: dict[str, Any], *, impl: Any = "auto") -> None:
        query, key, value = (tensor.clone().requires_grad_() for tensor in made)
        floats = {
            name: given.to(query.dtype, copy=True).requires_grad_()
            for name, given in options.items()
            if isinstance(given, Tensor) and given.is_floating_point()
        }
        self.leaves = [query, key, value, *floats.values()]
        torch.manual_seed(11)  # of dropout
        self.output, self.logsumexp = ops.attention_with_logsumexp(
            query, key, value, **{**options, **floats}, impl=impl
        )

    def returned(self, which: str) -> list[Tensor]:
        return [self.output, self.logsumexp] if which == "both" else [getattr(self, which)]


def stacks_for(outputs: Sequence[Tensor], count: int = COUNT) -> list[Tensor]:
    return [torch.randn(count, *each.shape, dtype=each.dtype) for each in outputs]


@by_both_maps
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("name", OPTIONS)
def test_each_upstream_has_the_gradients_it_has_alone(name: str, dtype: torch.dtype, at_once: Way) -> None:
    for batch, num_kv_heads in ((1, 6), (1, 1), (2, 3)):  # what has one batch element is mapped uncopied
        made = tensors("randn", batch=batch, num_kv_heads=num_kv_heads, value_head_dim=13, dtype=dtype)
        options = {
            name: given.to(dtype) if isinstance(given, Tensor) and given.is_floating_point() else given
            for name, given in OPTIONS[name](batch, 6, 5, 7).items()
        }
        problem, exact = Problem(made, options), Problem([tensor.double() for tensor in made], options)
        for which in ("output", "both"):
            outputs = problem.returned(which)
            stacks = stacks_for(outputs)
            found, expected = (way(outputs, problem.leaves, stacks) for way in (at_once, alone))
            if dtype is torch.float64:
                torch.testing.assert_close(found, expected)
                continue
            # To the kernel it is all one what else is in the batch. What torch adds up over it is not here.
            assert all(torch.equal(*pair) for pair in zip(found[:3], expected[:3], strict=True))
            wide = alone(exact.returned(which), exact.leaves, [stack.double() for stack in stacks])
            for each in zip(found, wide, expected, strict=True):
                assert_within_rule(*each, name=f"{which}, {batch} elements")


@by_both_maps
@pytest.mark.parametrize("impl", ["cpu", "torch"])
def test_upstreams_of_logsumexp_alone_may_be_a_stack(at_once: Way, impl: Any) -> None:
    made = tensors("randn", batch=1)
    problem = Problem(made, {"sinks": torch.randn(6), "mask": Causal()}, impl=impl)
    leaves = [problem.leaves[place] for place in (0, 1, 3)]  # values have no part in it
    stacks = stacks_for([problem.logsumexp])
    expected = alone([problem.logsumexp], leaves, stacks)
    for one, other in zip(at_once([problem.logsumexp], leaves, stacks), expected, strict=True):
        torch.testing.assert_close(one, other)


@by_both_maps
@pytest.mark.parametrize("impl", ["cpu", "torch"])
def test_hidden_numbers_that_are_none_reach_nothing(at_once: Way, impl: Any) -> None:
    for batch in (1, 2):
        query, key, value = tensors("randn", batch=batch)
        key[:, :, 6], value[:, :, 5] = torch.nan, torch.inf
        problem = Problem((query, key, value), {"mask": Lengths([0, 5][-batch:])}, impl=impl)
        outputs = problem.returned("both")
        stacks = stacks_for(outputs)
        expected = alone(outputs, problem.leaves, stacks)
        for one, other in zip(at_once(outputs, problem.leaves, stacks), expected, strict=True):
            assert one.isfinite().all()
            torch.testing.assert_close(one, other)
            if batch == 2:  # whose first element sees nothing
                assert (one[:, 0] == 0).all()


@by_both_maps
@pytest.mark.parametrize("name", OPTIONS)
def test_derivatives_of_any_order_may_be_of_a_stack(name: str, at_once: Way) -> None:
    """Each order alone or at once: what the one leaves behind, the other must find."""
    options = OPTIONS[name](2, 2, 3, 4)
    made = [torch.randn(2, *rest, dtype=torch.float64) for rest in ((2, 3, 2), (1, 4, 2), (1, 4, 2))]
    problem = Problem(made, options)
    first = [problem.output, problem.logsumexp.masked_fill(problem.logsumexp == -torch.inf, 0.0)]

    def derived(ways: Sequence[Way]) -> list[Tensor]:
        torch.manual_seed(5)
        found = first
        for way in ways:
            # Were it linear, the derivative after the next would not hang on its upstreams.
            squares = [each.square() + each for each in found]
            found = way(squares, problem.leaves, stacks_for(squares, count=2), create_graph=True)
        return found

    expected = derived([alone] * 3)
    for ways in ((at_once, alone, alone), (alone, at_once, alone), (alone, alone, at_once), (at_once,) * 3):
        for one, other in zip(derived(ways), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8 * other.abs().max().item())


def small(*given: Tensor) -> tuple[Tensor, Tensor]:
    query, key, value, bias, sinks, gates = given
    found = ops.attention_with_logsumexp(
        query, key, value, bias=bias, sinks=sinks, head_gates=gates, mask=Causal(), softcap=2.0
    )
    return tuple(found)


def loss(*given: Tensor) -> Tensor:
    output, logsumexp = small(*given)
    return output.square().sum() + logsumexp.sin().sum()


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # by torch itself
@pytest.mark.parametrize("strategy", ["reverse-mode", "forward-mode"])
@pytest.mark.parametrize("batch", [1, 2])
def test_vectorized_derivatives_are_those_taken_one_by_one(strategy: str, batch: int) -> None:
    shapes = (batch, 2, 3, 2), (batch, 1, 4, 2), (batch, 1, 4, 2), (1, 2, 1, 4), (2,), (batch, 2)
    given = tuple(torch.randn(shape, dtype=torch.float64) for shape in shapes)
    found = jacobian(small, given, vectorize=True, strategy=strategy)
    torch.testing.assert_close(found, jacobian(small, given))
    found = hessian(loss, given, vectorize=True, outer_jacobian_strategy=strategy)
    torch.testing.assert_close(found, hessian(loss, given))


def test_torch_refuses_to_draw_dropout_inside_a_map() -> None:
    """Forward-mode derivatives compute the call itself in the map; torch says so, and what to do."""
    made = tensors("randn")
    with pytest.raises(RuntimeError, match="perform random operations outside of vmap"):
        jacobian(
            lambda query: ops.attention(query, *made[1:], dropout=0.5),
            made[0],
            vectorize=True,
            strategy="forward-mode",
        )


def test_a_stack_may_be_of_stacks() -> None:
    query, *others = tensors("randn", batch=1)
    inner, outer = (query.clone().requires_grad_() for _ in range(2))
    output = ops.attention(inner, *others, mask=Causal())

    def twice_and_thrice(upstream: Tensor) -> Tensor:
        stack = torch.stack([2 * upstream, 4 * upstream])
        return batched([output], [inner], [stack])[0].sum(0)

    copied = outer * 1
    copied.register_hook(twice_and_thrice)
    stacks = stacks_for([output])
    (found,) = batched([copied], [outer], stacks)
    torch.testing.assert_close(found, 6 * alone([output], [inner], stacks)[0])


def test_a_call_that_a_mode_followed_has_gradients_of_a_stack() -> None:
    given: Any = tensors("randn"), {"mask": Causal()}
    problem = Problem(*given)
    with FlopCounterMode(display=False):
        followed = Problem(*given)
    stacks = stacks_for([problem.output])
    expected = alone([problem.output], problem.leaves, stacks)
    for one, other in zip(batched([followed.output], followed.leaves, stacks), expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("place", [0, 1])
def test_the_operator_itself_can_be_mapped_by_the_older_map(place: int) -> None:
    terms = Terms.of(arguments.check(*tensors("randn"), mask=Causal()))
    stack = torch.stack([terms[place], 2 * terms[place]])

    def attend(given: Tensor) -> tuple[Tensor, ...]:
        return tuple(ATTENTION(*terms[:place], given, *terms[place + 1 :], "auto", True)[:2])

    found: Any = _vmap(attend)(stack)
    for one, *each in zip(found, *map(attend, stack), strict=True):
        assert torch.equal(one, torch.stack(each))
