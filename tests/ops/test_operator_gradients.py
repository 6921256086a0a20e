"""Gradients of every option, by the kernel and by the formula, and their gradients."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from headwise import ops
from headwise.errors import UnsupportedError
from headwise.masks import Causal, Lengths, Window
from headwise.ops import plain

from ..attention_cases import tensors
from ..naive import naive_attention
from ..tolerance import assert_within_rule
from .bits import assert_same_bits, threads


def float64(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def small() -> tuple[Tensor, Tensor, Tensor]:
    return float64(2, 2, 2, 3), float64(2, 1, 4, 3), float64(2, 1, 4, 2)


# Options with tensors, and options without; all rows see a key unless it says so.
OPTIONS: dict[str, tuple[Callable[[], dict[str, Tensor]], dict[str, Any]]] = {
    "nothing": (dict, {}),
    "an empty row": (dict, {"mask": Window(left=1) & Lengths([0, 4])}),
    "boolean": (dict, {"mask": torch.tensor([[True, False, True, True], [False, True, True, False]])}),
    "bias": (lambda: {"bias": float64(2, 1, 2, 4)}, {}),
    "float mask and bias": (lambda: {"mask": float64(2, 4), "bias": float64(1, 2, 1, 4)}, {}),
    "a number for each row": (lambda: {"bias": float64(2, 1)}, {}),
    "sinks": (lambda: {"sinks": float64(2)}, {"mask": Causal()}),
    "sinks and an empty row": (lambda: {"sinks": float64(2)}, {"mask": Lengths([0, 3])}),
    "gates": (lambda: {"head_gates": float64(2, 2)}, {}),
    "softcap": (dict, {"softcap": 0.7}),
    "all": (
        lambda: {"bias": float64(2, 2, 2, 4), "sinks": float64(2), "head_gates": float64(2)},
        {"softcap": 1.3, "scale": 0.9, "mask": Causal()},
    ),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_first_and_second_derivatives_are_those_of_the_function(name: str) -> None:
    made, options = OPTIONS[name][0](), OPTIONS[name][1]

    def attend(query: Tensor, key: Tensor, value: Tensor, *given: Tensor) -> tuple[Tensor, Tensor]:
        filled = dict(zip(made, given, strict=True))
        found = ops.attention_with_logsumexp(query, key, value, **filled, **options)
        # Numerical derivatives of what is -inf are NaN.
        return found.output, found.logsumexp.masked_fill(found.logsumexp == -torch.inf, 0.0)

    assert gradcheck(attend, (*small(), *made.values()))
    assert gradgradcheck(attend, (*small(), *made.values()))


@pytest.mark.parametrize("name", ["nothing", "boolean", "bias"])
def test_the_output_alone_has_both_derivatives_too(name: str) -> None:
    made, options = OPTIONS[name][0](), OPTIONS[name][1]
    query, key, _ = small()
    value = float64(2, 1, 4, 3)  # as wide as the keys: torch's fused kernel computes

    def attend(query: Tensor, key: Tensor, value: Tensor, *given: Tensor) -> Tensor:
        return ops.attention(query, key, value, **dict(zip(made, given, strict=True)), **options)

    assert ops.choose(query, key, value, **made, **options).path == "fused"
    assert gradcheck(attend, (query, key, value, *made.values()))
    assert gradgradcheck(attend, (query, key, value, *made.values()))


def test_dropout_has_both_derivatives() -> None:
    def attend(*leaves: Tensor) -> tuple[Tensor, Tensor]:
        torch.manual_seed(3)
        return tuple(ops.attention_with_logsumexp(*leaves, dropout=0.4))

    assert gradcheck(attend, small())
    assert gradgradcheck(attend, small())


LARGE: dict[str, Callable[[], dict[str, Any]]] = {
    "bias": lambda: {"bias": torch.randn(2, 6, 17, 19)},
    "bias for each head and key": lambda: {"bias": torch.randn(1, 6, 1, 19)},
    "bias for each row": lambda: {"bias": torch.randn(17, 1)},
    "two biases": lambda: {"bias": torch.randn(2, 1, 17, 19), "mask": torch.randn(17, 19)},
    "sinks": lambda: {"sinks": torch.randn(6), "mask": Causal()},
    "gates": lambda: {"head_gates": torch.randn(2, 6)},
    "softcap": lambda: {"softcap": 1.3, "mask": Lengths([19, 5])},
    "all": lambda: {"softcap": 2.9, "scale": 0.71, "bias": torch.randn(6, 17, 19), "sinks": torch.randn(6)},
}


@pytest.mark.parametrize("impl", ["cpu", "torch"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", LARGE)
def test_gradients_of_options_keep_the_tolerance_rule(name: str, dtype: torch.dtype, impl: Any) -> None:
    made = dict(
        zip(("query", "key", "value"), tensors("randn", seq_len=17, kv_len=19, dtype=dtype), strict=True)
    )
    drawn = LARGE[name]()  # here, where numbers are drawn from a seed
    floats = {key: given.to(dtype) for key, given in drawn.items() if isinstance(given, Tensor)}
    others = {key: given for key, given in drawn.items() if not isinstance(given, Tensor)}
    upstream, of_logsumexp = torch.randn(2, 6, 17, 11), torch.randn(2, 6, 17)

    def found(attend: Callable[..., Any], wanted: torch.dtype) -> tuple[Tensor, ...]:
        leaves = {key: each.to(wanted).requires_grad_() for key, each in {**made, **floats}.items()}
        query, key, value, *_ = leaves.values()
        options = {key: each for key, each in leaves.items() if key in floats}
        output, logsumexp = attend(query, key, value, **options, **others)
        loss = (output * upstream.to(wanted)).sum() + (logsumexp * of_logsumexp).sum()
        return torch.autograd.grad(loss, list(leaves.values()))

    ours = found(lambda *given, **options: ops.attention_with_logsumexp(*given, **options, impl=impl), dtype)
    exact, baseline = found(naive_in_range, torch.float64), found(naive_in_range, dtype)
    for key, *each in zip((*made, *floats), ours, exact, baseline, strict=True):
        assert_within_rule(*each, name=f"gradient of {key}")


def naive_in_range(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Any:
    """Naive attention, whose own masks are NumPy's, where a float mask is a bias as any."""
    biases = [options.pop(name) for name in ("mask", "bias") if isinstance(options.get(name), Tensor)]
    if not biases:
        return naive_attention(query, key, value, **options)
    return naive_with_biases(query, key, value, biases, **options)


def naive_with_biases(query: Tensor, key: Tensor, value: Tensor, biases: list[Tensor], **options: Any) -> Any:
    """Naive attention with a gradient of its biases, over all keys."""
    key, value = (tensor.repeat_interleave(2, dim=1) for tensor in (key, value))
    scores = (query @ key.mT) * options.get("scale", query.shape[3] ** -0.5)
    if "softcap" in options:
        scores = options["softcap"] * torch.tanh(scores / options["softcap"])
    for bias in biases:
        scores = scores + (bias if bias.dim() != 3 else bias[None])
    if "sinks" in options:
        scores = torch.cat([scores, options["sinks"][:, None, None].expand(*scores.shape[:3], 1)], -1)
    return torch.softmax(scores, -1)[..., : key.shape[2]] @ value, torch.logsumexp(scores, -1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_training_gives_the_bits_of_inference(dtype: torch.dtype) -> None:
    made = [tensor.requires_grad_() for tensor in tensors("peaked", seq_len=61, kv_len=67, dtype=dtype)]
    options = {"mask": Causal() & Lengths([0, 67]), "bias": torch.randn(6, 61, 67), "sinks": torch.randn(6)}
    found = ops.attention_with_logsumexp(*made, **options)
    alone = ops.attention(*made, **options)
    assert found.output.requires_grad
    with torch.no_grad():
        expected = ops.attention_with_logsumexp(*made, **options)
    assert_same_bits(found, expected, "training")
    assert torch.equal(alone, expected.output)


@pytest.mark.parametrize("impl", ["cpu", "torch"])
def test_second_derivatives_behind_the_kernel_are_those_of_float64(impl: Any) -> None:
    made, upstream = tensors("randn", num_heads=3), torch.randn(2, 3, 5, 11)

    def penalty(impl: Any, *leaves: Tensor) -> tuple[Tensor, ...]:
        output = ops.attention(*leaves, mask=Causal(), impl=impl)
        gradients = torch.autograd.grad(output, leaves, upstream.to(output.dtype), create_graph=True)
        return torch.autograd.grad(sum(each.square().sum() for each in gradients), leaves)

    found = penalty(impl, *(tensor.clone().requires_grad_() for tensor in made))
    exact = penalty("torch", *(tensor.double().requires_grad_() for tensor in made))
    for one, other in zip(found, exact, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-4)


def test_dropout_by_the_kernel_and_by_torch_has_one_gradient() -> None:
    made, upstream = tensors("randn", seq_len=17, kv_len=19), torch.randn(2, 6, 17, 11)
    found = {}
    for impl in ("cpu", "torch"):
        leaves = [tensor.clone().requires_grad_() for tensor in made]
        torch.manual_seed(5)
        output = ops.attention(*leaves, mask=Causal(), dropout=0.3, impl=impl)  # type: ignore[arg-type]
        found[impl] = torch.autograd.grad(output, leaves, upstream)
    for one, other in zip(*found.values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("impl", ["cpu", "torch"])
def test_rows_of_the_formula_come_in_blocks(impl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [tensor.requires_grad_() for tensor in tensors("randn", seq_len=23)]
    options = {"bias": torch.randn(6, 23, 7, requires_grad=True), "sinks": torch.randn(6, requires_grad=True)}
    leaves = [*made, *options.values()]
    loss = ops.attention(*made, **options, mask=Causal(), impl=impl).square().sum()
    whole = torch.autograd.grad(loss, leaves, retain_graph=True)
    monkeypatch.setattr(plain, "SCORES_PER_BLOCK", 2 * 6 * 7 * 5 + 3)
    for one, other in zip(torch.autograd.grad(loss, leaves), whole, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("impl", ["cpu", "torch"])
def test_a_large_sink_gets_nothing_from_empty_rows(impl: Any) -> None:
    made = [tensor.requires_grad_() for tensor in tensors("randn")]
    sinks = torch.full((6,), 200.0, requires_grad=True)
    found = ops.attention_with_logsumexp(*made, sinks=sinks, mask=Lengths([0, 7]), impl=impl)
    upstream = torch.ones(2, 6, 5)
    gradients = torch.autograd.grad([found.output.sum(), found.logsumexp], [sinks, *made], [None, upstream])
    torch.testing.assert_close(gradients[0], torch.full((6,), 5.0))  # all weight of five rows
    assert all((gradient[0] == 0).all() for gradient in gradients[1:])


@pytest.mark.parametrize("impl", ["cpu", "torch"])
def test_a_gate_of_zero_has_a_gradient_and_hides_what_is_not_finite(impl: Any) -> None:
    query, key, value = tensors("randn", num_heads=3)
    value[:, 1] = torch.inf
    gates = torch.tensor([0.0, 0.0, 2.0], requires_grad=True)
    output = ops.attention(query, key, value, head_gates=gates, impl=impl)
    assert (output[:, :2] == 0).all()
    (found,) = torch.autograd.grad(output.sum(), gates)
    ungated = ops.attention(query, key, value, impl=impl)
    torch.testing.assert_close(found[[0, 2]], ungated[:, [0, 2]].sum((0, 2, 3)))


@pytest.mark.parametrize("impl", ["cpu", "torch"])
@pytest.mark.parametrize("gate", [torch.nan, torch.inf])
def test_a_gate_that_is_not_finite_leaves_empty_rows_zero(impl: Any, gate: float) -> None:
    made = [tensor.requires_grad_() for tensor in tensors("randn")]
    found = ops.attention(*made, mask=Lengths([0, 7]), head_gates=torch.full((6,), gate), impl=impl)
    assert (found[0] == 0).all()
    assert not found[1].isfinite().any()


def test_only_what_is_wanted_is_computed_and_of_its_own_dtype() -> None:
    query, key, value = tensors("randn", dtype=torch.bfloat16)
    bias = torch.randn(7, requires_grad=True).expand(5, 7)
    sinks = torch.randn(6, dtype=torch.float16, requires_grad=True)
    key.requires_grad_()
    found = torch.autograd.grad(
        ops.attention(query, key, value, bias=bias, sinks=sinks).sum(), [key, bias, sinks]
    )
    assert [each.dtype for each in found] == [torch.bfloat16, torch.float32, torch.float16]


def test_the_reference_has_no_gradient() -> None:
    made = [tensor.requires_grad_() for tensor in tensors("randn")]
    with pytest.raises(UnsupportedError, match='impl="reference" has no gradient'):
        ops.attention(*made, impl="reference")


def test_many_numbers_that_become_one_are_added_in_one_order() -> None:
    """torch shares such a sum out among its threads: beside a whole bias, that of one number hung on them."""
    made = [torch.randn(1, 1, 1021, 8) for _ in range(3)]
    biases, upstream = (torch.randn(1, 1, 1, 1), torch.randn(1021, 1021)), torch.randn(1, 1, 1021, 8)

    def found(count: int) -> tuple[Tensor, ...]:
        bias, mask = (each.clone().requires_grad_() for each in biases)
        with threads(count):
            output = ops.attention(*made, bias=bias, mask=mask, impl="cpu")
            return torch.autograd.grad(output, (bias, mask), upstream)

    alone = found(1)
    for count in (2, 3, 8):
        assert all(torch.equal(*pair) for pair in zip(found(count), alone, strict=True))
