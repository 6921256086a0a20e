"""Whoever follows torch's operations (a tracer, a transform, a counter) does not lose sight of a call."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

from headwise import ops
from headwise.errors import UnsupportedError
from headwise.masks import Causal, Dense
from headwise.ops.watchers import watcher_of

from ..attention_cases import tensors

OPERATOR = torch.ops.headwise.attention.default


def attend(*made: Tensor) -> Tensor:
    return ops.attention(*made, mask=Causal())


def refusal(*made: Tensor, impl: Any = "cpu") -> str:
    with pytest.raises(UnsupportedError) as found:
        ops.choose(*made, impl=impl)
    return str(found.value)


def test_compiled_code_gives_the_same_numbers() -> None:
    made = tensors("randn")
    compiled: Callable[..., Tensor] = torch.compile(attend, backend="eager", fullgraph=True)
    assert torch.equal(compiled(*made), attend(*made))


def test_a_trace_holds_the_operator_and_no_constant() -> None:
    made = tensors("randn")
    traced = make_fx(attend)(*made)
    assert next(node.target for node in traced.graph.nodes if node.op == "call_function") == OPERATOR
    others = [2 * tensor for tensor in made]
    assert torch.equal(traced(*others), attend(*others))


def test_flops_are_those_of_the_products() -> None:
    made = [tensor.requires_grad_() for tensor in tensors("randn", value_head_dim=13)]
    scores = 2 * 6 * 5 * 7
    with FlopCounterMode(display=False) as counter:
        found = ops.attention_with_logsumexp(*made).output
    assert counter.get_total_flops() == 2 * scores * (11 + 13)
    with FlopCounterMode(display=False) as counter:
        found.sum().backward()
    assert counter.get_total_flops() == 2 * scores * (3 * 11 + 2 * 13)


def test_jit_trace_does_not_hold_the_kernels_result_for_a_constant() -> None:
    told: list[Any] = []
    with pytest.warns(DeprecationWarning, match=r"torch.jit.trace"):
        torch.jit.trace(lambda query: (told.append(watcher_of([query])), query + 1)[1], tensors("randn")[:1])
    assert {(watcher.text, watcher.knows_operators) for watcher in filter(None, told)} == {
        ("torch.jit.trace is tracing", False)
    }


def test_fake_tensors_give_shape_and_dtype() -> None:
    with FakeTensorMode() as mode:
        made = [mode.from_tensor(tensor) for tensor in tensors("randn", dtype=torch.float16)]
        found = ops.attention_with_logsumexp(*made, mask=Causal())
        assert (found.output.shape, found.output.dtype) == ((2, 6, 5, 11), torch.float16)
        assert (found.logsumexp.shape, found.logsumexp.dtype) == ((2, 6, 5), torch.float32)
    assert "and the tensors hold no numbers, which does not see them" in refusal(*made, impl="reference")


def test_transforms_of_torch_func_see_the_call() -> None:
    query, key, value = tensors("randn")
    told: list[str] = []

    def loss(given: Tensor) -> Tensor:
        told.append(refusal(given, key, value, impl="reference"))
        return attend(given, key, value).square().sum()

    found = torch.func.grad(loss)(query)
    assert "and a transform of torch.func is at work, which does not see them" in told[0]
    query.requires_grad_()
    (expected,) = torch.autograd.grad(attend(query, key, value).square().sum(), query)
    assert torch.equal(found, expected)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # by torch itself
@pytest.mark.parametrize("options", [{"softcap": 2.0}, {}, {"impl": "torch"}], ids=str)
def test_forward_derivatives_are_not_lost(options: Any) -> None:
    query, key, value = tensors("randn")
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(query, query)
        assert "forward-mode derivatives are being taken, which would not see" in refusal(dual, key, value)
        output = ops.attention(dual, key, value, **options)
        tangent = forward_ad.unpack_dual(output).tangent
    ahead, behind = (
        ops.attention(query.double() * factor, key.double(), value.double(), **options)
        for factor in (1 + 1e-6, 1 - 1e-6)
    )
    torch.testing.assert_close(tangent.double(), (ahead - behind) / 2e-6, rtol=1e-4, atol=1e-4)


def test_a_class_of_tensors_is_kept() -> None:
    mine = type("Mine", (Tensor,), {})
    query, key, value = tensors("randn")
    assert isinstance(attend(query.as_subclass(mine), key, value), mine)
    dense = Dense(torch.zeros(5, 7).as_subclass(mine))
    assert ops.choose(query, key, value, mask=dense).impl == "torch"
    assert "an input is a Mine, a class of tensors of its own, which would not" in refusal(
        query.as_subclass(mine), key, value
    )


def test_attention_inside_a_backward_pass_under_the_older_map() -> None:
    """A function of the user's own may attend in its backward pass, to upstreams that torch maps."""

    class AttendsToUpstream(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: Any, given: Tensor) -> Tensor:
            return given.clone()

        @staticmethod
        def backward(_ctx: Any, upstream: Tensor) -> Tensor:  # type: ignore[override]  # one upstream here
            return ops.attention(upstream, upstream, upstream, mask=Causal())

    given = torch.randn(2, 3, 5, 8, requires_grad=True)
    stack = torch.randn(4, 2, 3, 5, 8)
    (found,) = torch.autograd.grad(AttendsToUpstream.apply(given), given, stack, is_grads_batched=True)
    assert torch.equal(found, torch.stack([ops.attention(each, each, each, mask=Causal()) for each in stack]))
