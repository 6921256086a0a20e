"""Whoever follows torch's operations (a tracer, a transform, a counter) does not lose sight of a call."""

from collections.abc import Callable

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
from headwise.ops import arguments, kernel
from headwise.ops.watchers import watcher_of

from ..attention_cases import tensors


def attend(*made: Tensor) -> Tensor:
    return ops.attention(*made, mask=Causal())


def refusal(*made: Tensor) -> str:
    with pytest.raises(UnsupportedError) as found:
        ops.choose(*made, impl="cpu")
    return str(found.value)


def test_compiled_code_gives_the_same_numbers() -> None:
    made = tensors("randn")
    compiled: Callable[..., Tensor] = torch.compile(attend, backend="eager")
    torch.testing.assert_close(compiled(*made), attend(*made))


def test_torch_compile_does_not_trace_the_kernel() -> None:
    told: list[str] = []

    def asked(*made: Tensor) -> Tensor:
        told.extend(kernel.why_not(arguments.check(*made)))
        return made[0] + 1

    torch.compile(asked, backend="eager", fullgraph=True)(*tensors("randn"))
    assert told == ["torch.compile or torch.export is tracing, which would not see what the kernel does"]


def test_a_trace_does_not_hold_the_kernels_result_for_a_constant() -> None:
    told: list[str] = []

    def asked(*made: Tensor) -> Tensor:
        told.append(refusal(*made))
        return made[0] + 1

    make_fx(asked)(*tensors("randn"))
    assert "a torch dispatch mode is active, such as a tracer or a counter of FLOPs, which would" in told[0]
    with FlopCounterMode(display=False) as counter:
        ops.attention_with_logsumexp(*tensors("randn"))
    assert counter.get_total_flops() == 2 * 2 * 2 * 6 * 5 * 7 * 11


def test_jit_trace_does_not_hold_the_kernels_result_for_a_constant() -> None:
    told: list[str] = []

    def asked(query: Tensor) -> Tensor:
        told.extend(filter(None, [watcher_of([query])]))
        return query + 1

    with pytest.warns(DeprecationWarning, match=r"torch.jit.trace"):
        torch.jit.trace(asked, tensors("randn")[:1])
    assert set(told) == {"torch.jit.trace is tracing"}


def test_fake_tensors_give_shape_and_dtype() -> None:
    with FakeTensorMode() as mode:
        made = [mode.from_tensor(tensor) for tensor in tensors("randn", dtype=torch.float16)]
        found = ops.attention_with_logsumexp(*made, mask=Causal())
        assert (found.output.shape, found.output.dtype) == ((2, 6, 5, 11), torch.float16)
        assert (found.logsumexp.shape, found.logsumexp.dtype) == ((2, 6, 5), torch.float32)
    assert "an input is a FakeTensor, a class of tensors of its own, which would not see" in refusal(*made)


def test_transforms_of_torch_func_see_the_call() -> None:
    query, key, value = tensors("randn")
    told: list[str] = []

    def loss(given: Tensor) -> Tensor:
        told.append(refusal(given, key, value))
        return attend(given, key, value).square().sum()

    found = torch.func.grad(loss)(query)
    assert "a transform of torch.func is at work, which would not see what the kernel does" in told[0]
    query.requires_grad_()
    (expected,) = torch.autograd.grad(attend(query, key, value).square().sum(), query)
    torch.testing.assert_close(found, expected)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # by torch itself
def test_forward_derivatives_are_not_lost() -> None:
    query, key, value = tensors("randn")
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(query, query)
        assert "forward-mode derivatives are being taken, which would not see" in refusal(dual, key, value)
        output = ops.attention(dual, key, value, softcap=2.0)
        tangent = forward_ad.unpack_dual(output).tangent
    ahead, behind = (
        ops.attention(query.double() * factor, key.double(), value.double(), softcap=2.0)
        for factor in (1 + 1e-6, 1 - 1e-6)
    )
    torch.testing.assert_close(tangent.double(), (ahead - behind) / 2e-6, rtol=1e-4, atol=1e-4)


def test_a_class_of_tensors_is_kept() -> None:
    mine = type("Mine", (Tensor,), {})
    query, key, value = tensors("randn")
    assert isinstance(attend(query.as_subclass(mine), key, value), mine)
    dense = Dense(torch.zeros(5, 7).as_subclass(mine))
    assert ops.choose(query, key, value, mask=dense).impl == "torch"
