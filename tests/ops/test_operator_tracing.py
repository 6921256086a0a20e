"""`torch.compile` and `torch.export` take attention whole, forward and backward, for any sizes."""

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.fx.experimental.proxy_tensor import make_fx

from headwise import ops
from headwise.errors import ArgumentError, UnsupportedError
from headwise.masks import Causal, CausalFrom, Dense, Lengths, Packed, Prefix, Window

from ..attention_cases import tensors

# What Inductor makes is C++; without a compiler, what it would be given is run as it is.
BACKENDS = ("aot_eager", *(("inductor",) if shutil.which("g++") else ()))
OPERATOR = torch.ops.headwise.attention.default

MASKS: dict[str, Any] = {
    "none": None,
    "causal": Causal(),
    "window": Window.of(3) & Causal(),
    "lengths": Lengths([3, 7]) & Causal("upper_left"),
    "packed": Packed([2, 3], key_lengths=[3, 4]),
    "prefix": Prefix([2, 3]),
    "causal from": CausalFrom([2, 0], counts=[3, 5], window=4),
    "boolean": torch.ones(5, 7).tril().bool(),
    "dense": Causal() & Dense(torch.ones(2, 5, 7) > 0, axes="bqk"),
    "float": torch.zeros(5, 7),
}


@pytest.fixture(autouse=True)
def forgotten() -> None:
    torch._dynamo.reset()


def leaves(**sizes: int) -> list[Tensor]:
    return [tensor.requires_grad_() for tensor in tensors("randn", **sizes)]


def with_gradients(attend: Callable[..., Tensor], made: list[Tensor]) -> tuple[Tensor, ...]:
    output = attend(*made)
    return output, *torch.autograd.grad(output.square().sum(), made)


def assert_same(found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.filterwarnings(
    "ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"
)  # by torch itself
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_layer_compiles_whole_forward_and_backward(backend: str) -> None:
    weights = [torch.randn(33, 33, requires_grad=True) for _ in range(3)]
    tokens, gates = torch.randn(2, 5, 33), torch.rand(3, requires_grad=True)

    def layer(*weights: Tensor) -> Tensor:
        # [batch, seq_len, 33] -> [batch, 3, seq_len, 11], which lies in memory as it came
        heads = [(tokens @ weight).unflatten(-1, (3, 11)).transpose(1, 2) for weight in weights]
        mixed = ops.attention(
            *heads, mask=Causal(), bias=tokens.mean() * tokens[:, None, :, :5], head_gates=gates
        )
        return mixed.transpose(1, 2).flatten(2)

    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    assert_same(with_gradients(compiled, weights), with_gradients(layer, weights))


@pytest.mark.parametrize("name", MASKS)
def test_every_mask_compiles_whole(name: str) -> None:
    made, mask = leaves(), MASKS[name]

    def attend(*given: Tensor) -> Tensor:
        return ops.attention(*given, mask=mask)

    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    assert_same(with_gradients(compiled, made), with_gradients(attend, made))


def test_masks_are_made_in_compiled_code_and_given_to_it() -> None:
    def attend(query: Tensor, key: Tensor, value: Tensor, mask: Any) -> tuple[Tensor, ...]:
        sinks = query.mean((0, 2, 3))
        return tuple(ops.attention_with_logsumexp(query, key, value, mask=mask & Window.of(3), sinks=sinks))

    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    for lengths in ([3, 7], [7, 1]):
        given = (*tensors("randn"), Lengths(lengths))
        assert_same(compiled(*given), attend(*given))


@pytest.mark.parametrize("mask", [None, Causal() & Window.of(3), Prefix(2)], ids=["none", "window", "prefix"])
def test_other_sizes_are_not_compiled_again(mask: Any) -> None:
    def attend(*given: Tensor) -> Tensor:
        return ops.attention(*given, mask=mask)

    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(attend, fullgraph=True, backend=counter, dynamic=True)
    counts = set()
    # Sizes that are equal at first are taken for the same one.
    for batch, seq_len, kv_len in ((4, 5, 7), (8, 11, 13), (3, 9, 17)):
        made = leaves(batch=batch, seq_len=seq_len, kv_len=kv_len)
        assert_same(with_gradients(compiled, made), with_gradients(attend, made))
        counts.add(counter.frame_count)
    assert len(counts) == 1


def test_lengths_are_given_as_numbers_to_compiled_code() -> None:
    def attend(query: Tensor, key: Tensor, value: Tensor, lengths: list[int]) -> Tensor:
        return ops.attention(query, key, value, mask=Lengths(lengths))

    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager", dynamic=True)
    made = tensors("randn")
    for lengths in ([3, 4], [6, 0]):
        assert torch.equal(compiled(*made, lengths), attend(*made, lengths))


def test_dropout_in_compiled_code_differs_from_run_to_run_and_follows_the_seed() -> None:
    made = leaves()
    compiled = torch.compile(
        lambda *given: ops.attention(*given, dropout=0.5), fullgraph=True, backend="aot_eager"
    )
    torch.manual_seed(3)
    first, second = with_gradients(compiled, made), with_gradients(compiled, made)
    assert not torch.equal(first[0], second[0])
    torch.manual_seed(3)
    assert_same(with_gradients(compiled, made), first)
    torch.manual_seed(3)
    assert_same(with_gradients(lambda *given: ops.attention(*given, dropout=0.5), made), first)


def test_autocast_is_compiled_too() -> None:
    def attend(*given: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return ops.attention(*given, mask=Causal()).float()

    made = leaves()
    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    assert_same(with_gradients(compiled, made), with_gradients(attend, made))


class Layer(torch.nn.Module):
    """A module with every kind of argument."""

    def __init__(self, mask: Any) -> None:
        super().__init__()
        self.mask, self.sinks = mask, torch.nn.Parameter(torch.randn(6))

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return ops.attention(query, key, value, mask=self.mask, sinks=self.sinks, softcap=3.0)


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "not strict"])
def test_an_exported_program_runs_with_other_sizes(strict: bool) -> None:
    layer = Layer(Causal() & Window.of(4))
    queries, keys = torch.export.Dim("queries", min=2, max=64), torch.export.Dim("keys", min=2, max=64)
    sizes = ({2: queries}, {2: keys}, {2: keys})
    program = torch.export.export(layer, tensors("randn"), dynamic_shapes=sizes, strict=strict)
    assert OPERATOR in {node.target for node in program.graph.nodes}
    given = tensors("randn", seq_len=11, kv_len=17)
    torch.testing.assert_close(program.module()(*given), layer(*given))


class Masked(torch.nn.Module):
    """A module whose mask and bias come with each call."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, bias: Tensor) -> Tensor:
        return ops.attention(query, key, value, mask=mask, bias=bias)


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "not strict"])
def test_masks_and_biases_of_an_exported_program_have_other_sizes_too(strict: bool) -> None:
    def given(seq_len: int, kv_len: int) -> tuple[Tensor, ...]:
        made = tensors("randn", seq_len=seq_len, kv_len=kv_len)
        return *made, torch.rand(seq_len, kv_len) < 0.8, torch.randn(6, seq_len, kv_len)

    queries, keys = torch.export.Dim("queries", min=2, max=64), torch.export.Dim("keys", min=2, max=64)
    sizes = ({2: queries}, {2: keys}, {2: keys}, {0: queries, 1: keys}, {1: queries, 2: keys})
    program = torch.export.export(Masked(), given(5, 7), dynamic_shapes=sizes, strict=strict)
    others = given(13, 17)
    torch.testing.assert_close(program.module()(*others), Masked()(*others))


def test_an_exported_program_can_be_trained() -> None:
    layer, made = Layer(Lengths([5, 7])), leaves()
    program = torch.export.export(layer, tuple(made)).module()
    assert_same(with_gradients(program, made), with_gradients(layer, made))


def test_a_trace_of_a_gradient_holds_both_operators() -> None:
    query, key, value = tensors("randn")

    def gradient(query: Tensor) -> Tensor:
        return torch.func.grad(lambda given: ops.attention(given, key, value, mask=Causal()).sum())(query)

    traced = make_fx(gradient)(query)
    targets = [node.target for node in traced.graph.nodes]
    assert {OPERATOR, torch.ops.headwise.attention_backward.default} <= set(targets)
    assert torch.equal(traced(2 * query), gradient(2 * query))


def test_arguments_are_checked_while_torch_traces() -> None:
    query, key, value = tensors("randn")
    wrong = Layer(Lengths([1, 2, 3]))
    with pytest.raises(ArgumentError, match="lengths has 3 entries, but batch is 2"):
        torch.export.export(wrong, (query, key, value), strict=False)
    with pytest.raises(ArgumentError, match="query has head_dim 11, key has head_dim 10"):
        torch.export.export(wrong, (query, key[..., :10], value), strict=False)
    with pytest.raises(UnsupportedError, match='impl="cpu" cannot compute this call: float64'):
        make_fx(lambda *given: ops.attention(*given, impl="cpu"))(
            query.double(), key.double(), value.double()
        )
    compiled = torch.compile(ops.attention, backend="aot_eager")
    with pytest.raises(ArgumentError, match="query has head_dim 11, key has head_dim 10"):
        compiled(query, key[..., :10], value)
    whole = torch.compile(wrong, backend="aot_eager", fullgraph=True)
    with pytest.raises(Exception, match="lengths has 3 entries, but batch is 2"):
        whole(query, key, value)


def test_lengths_that_do_not_fit_other_sizes_are_refused_when_the_program_runs() -> None:
    sizes = torch.export.Dim("keys", min=2, max=64)
    made = tensors("randn")
    program = torch.export.export(
        Layer(Lengths([5, 6])), made, dynamic_shapes=(None, {2: sizes}, {2: sizes}), strict=False
    )
    with pytest.raises(ArgumentError, match="lengths has an entry of 6, but there are only kv_len=3 keys"):
        program.module()(*tensors("randn", kv_len=3))
