"""Which implementation `auto` takes, and every reason for which one is passed over or refused."""

from typing import Any

import pytest
import torch
from torch import Tensor

from headwise import ops
from headwise.errors import ArgumentError, UnsupportedError
from headwise.kernels import attend as attend_arrays
from headwise.kernels.geometry import LARGEST_HEAD_DIM
from headwise.masks import Causal
from headwise.ops import IMPLEMENTATIONS, by_reference, choice, fused, kernel, plain

from ..attention_cases import all_masks, all_options, laid_out, tensors
from .bits import assert_same_bits, threads

KERNEL = choice.Choice("cpu", "kernel", ("the kernel computes this call",))
WIDE = LARGEST_HEAD_DIM + 1
SUM_OF_BIASES = "sinks beside several biases, or one in float64: the kernel takes one in float32 beside them"

# What the kernel does not do: sizes and dtype of the tensors, the options, and the reason.
OBSTACLES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "float64": ({"dtype": torch.float64}, {}, "float64: the kernel computes in float32"),
    "head_dim": (
        {"head_dim": WIDE, "value_head_dim": 11},
        {},
        f"head_dim={WIDE}: the kernel goes up to {LARGEST_HEAD_DIM}",
    ),
    "value_head_dim": (
        {"value_head_dim": WIDE},
        {},
        f"value_head_dim={WIDE}: the kernel goes up to {LARGEST_HEAD_DIM}",
    ),
    "sinks beside two biases": (
        {},
        {"sinks": torch.zeros(6), "bias": torch.zeros(5, 7), "mask": torch.zeros(5, 7)},
        SUM_OF_BIASES,
    ),
    "sinks beside a float64 bias": (
        {},
        {"sinks": torch.zeros(6), "bias": torch.zeros(5, 7, dtype=torch.float64)},
        SUM_OF_BIASES,
    ),
    "a mask of a class of its own": (
        {},
        {"mask": torch.ones(5, 7, dtype=torch.bool).as_subclass(type("Mine", (Tensor,), {}))},
        "an input is a Mine, a class of tensors of its own, which would not see what a kernel does",
    ),
}


def test_implementations_are_named_and_others_refused() -> None:
    assert IMPLEMENTATIONS == ("auto", "cpu", "torch", "reference")
    for call in (ops.attention, ops.attention_with_logsumexp, ops.choose):
        with pytest.raises(
            ArgumentError, match="impl='flash' is unknown; allowed are 'auto', 'cpu', 'torch', 'reference'"
        ):
            call(*tensors("randn"), impl="flash")  # type: ignore[operator]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("impl", ["auto", "cpu"])
def test_the_kernel_takes_every_mask_every_option_and_any_numbers(impl: Any, dtype: torch.dtype) -> None:
    made = tensors("randn", dtype=dtype, value_head_dim=LARGEST_HEAD_DIM)
    for mask in all_masks(2, 6, 5, 7).values():
        assert ops.choose(*made, mask=mask, impl=impl) == KERNEL
        assert ops.choose(*made, mask=mask, impl=impl, need_logsumexp=True) == KERNEL
    for options in all_options(2, 6, 5, 7).values():
        assert ops.choose(*made, **options, impl=impl) == KERNEL
    made[1][:] = torch.nan
    assert ops.choose(*(laid_out(tensor, "every_second") for tensor in made), impl=impl) == KERNEL


@pytest.mark.parametrize("sizes", [{"batch": 0}, {"seq_len": 0}, {"kv_len": 0}, {"value_head_dim": 0}])
def test_the_kernel_takes_empty_sizes(sizes: dict[str, int]) -> None:
    assert ops.choose(*tensors("randn", **sizes)) == KERNEL


@pytest.mark.parametrize("name", OBSTACLES)
def test_what_the_kernel_does_not_do_goes_to_torch_or_is_refused(name: str) -> None:
    sizes, options, reason = OBSTACLES[name]
    made = tensors("randn", **sizes)
    found = ops.choose(*made, **options)
    assert found == ops.choose(*made, **options, impl="torch")
    assert found.impl == "torch"
    for call in (ops.attention, ops.attention_with_logsumexp, ops.choose):
        with pytest.raises(UnsupportedError) as refusal:
            call(*made, **options, impl="cpu")  # type: ignore[operator]
        assert str(refusal.value) == (
            f'impl="cpu" cannot compute this call: {reason}; use impl="auto", which falls back on torch'
        )


@pytest.mark.parametrize("where", ["query", "key", "value", "bias", "sinks", "head_gates"])
def test_a_gradient_changes_no_choice(where: str) -> None:
    query, key, value = tensors("randn")
    options = {"bias": torch.zeros(5, 7), "sinks": torch.zeros(6), "head_gates": torch.ones(6)}
    {"query": query, "key": key, "value": value, **options}[where].requires_grad_()
    for impl in ("auto", "cpu"):
        assert ops.choose(query, key, value, **options, impl=impl) == KERNEL
        assert ops.attention(query, key, value, **options, impl=impl).requires_grad
        with torch.no_grad():
            assert not ops.attention(query, key, value, **options, impl=impl).requires_grad


def test_through_the_operator_runs_what_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = spied(monkeypatch, (kernel, "attend_for_gradient"), (fused, "attend"), (plain, "attend"))
    made = [tensor.requires_grad_() for tensor in tensors("randn")]
    for impl in ("auto", "cpu", "torch"):
        ops.attention(*made, impl=impl)
        ops.attention_with_logsumexp(*made, impl=impl)
    ops.attention(*made, softcap=2.0, impl="torch")
    by_kernel = ["kernel.attend_for_gradient"] * 4
    assert ran == [*by_kernel, "fused.attend", "plain.attend", "plain.attend"]


def test_the_kernel_is_refused_through_the_operator_as_without() -> None:
    made = [tensor.double().requires_grad_() for tensor in tensors("randn")]
    with pytest.raises(UnsupportedError, match='impl="cpu" cannot compute this call: float64: the kernel'):
        ops.attention(*made, impl="cpu")


def test_all_reasons_are_given_at_once() -> None:
    made = tensors("randn", dtype=torch.float64, value_head_dim=WIDE)
    with pytest.raises(UnsupportedError, match=r"float64: .*; value_head_dim=.*: the kernel"):
        ops.attention(*made, impl="cpu")


def test_a_device_without_the_kernel_is_refused() -> None:
    made = [tensor.to("meta") for tensor in tensors("randn")]
    assert ops.choose(*made).path == "plain"
    with pytest.raises(UnsupportedError, match="device meta: the kernel runs on cpu"):
        ops.attention(*made, impl="cpu")


def test_a_processor_without_the_kernel_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_unavailable", lambda: ("the processor has no vectors",))
    assert ops.choose(*tensors("randn")).path == "fused"
    with pytest.raises(UnsupportedError, match="cannot compute this call: the processor has no vectors; use"):
        ops.attention(*tensors("randn"), impl="cpu")


def spied(monkeypatch: pytest.MonkeyPatch, *functions: tuple[Any, str]) -> list[str]:
    """Return a list in which each of these functions, of these modules, will write when it runs."""
    ran: list[str] = []

    def spy(module: Any, name: str) -> None:
        original = getattr(module, name)
        told = f"{module.__name__.rsplit('.', 1)[1]}.{name}"
        monkeypatch.setattr(module, name, lambda *given: (ran.append(told), original(*given))[1])

    for module, name in functions:
        spy(module, name)
    return ran


def test_the_choice_is_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = [(module, "attend") for module in (kernel, fused, plain, by_reference)]
    ran = spied(monkeypatch, *modules, (kernel, "attend_with_logsumexp"))
    made = tensors("randn")
    for impl in IMPLEMENTATIONS:
        ops.attention(*made, impl=impl)
        ops.attention_with_logsumexp(*made, impl=impl)
    ops.attention(*made, softcap=2.0, impl="torch")
    by_kernel, by_name = ["kernel.attend", "kernel.attend_with_logsumexp"], ["by_reference.attend"] * 2
    assert ran == [*by_kernel, *by_kernel, "fused.attend", "plain.attend", *by_name, "plain.attend"]


def test_the_kernel_follows_the_number_of_threads_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    monkeypatch.setattr(
        attend_arrays, "attend", lambda *arrays, num_threads, **options: given.append(num_threads)
    )
    for count in (1, 3):
        with threads(count):
            ops.attention(*tensors("randn"), impl="cpu")
    assert given == [1, 3]


def test_auto_gives_the_bits_of_what_it_takes() -> None:
    made = tensors("randn")
    for given, impl in ((made, "cpu"), ([tensor.double() for tensor in made], "torch")):
        found = ops.attention_with_logsumexp(*given, mask=Causal())
        assert_same_bits(found, ops.attention_with_logsumexp(*given, mask=Causal(), impl=impl), impl)  # type: ignore[arg-type]


# --- the reference


def test_the_reference_is_chosen_by_name_only() -> None:
    found = ops.choose(*tensors("randn"), impl="reference")
    assert found == choice.Choice("reference", "reference", ("the caller named it",))


@pytest.mark.parametrize("where", ["query", "bias", "sinks"])
def test_the_reference_refuses_what_needs_a_gradient(where: str) -> None:
    query, key, value = tensors("randn")
    options = {"bias": torch.zeros(5, 7), "sinks": torch.zeros(6)}
    {"query": query, **options}[where].requires_grad_()
    with pytest.raises(UnsupportedError, match='impl="reference" has no gradient, and an input requires one'):
        ops.attention(query, key, value, impl="reference", **options)
    with torch.no_grad():
        ops.attention(query, key, value, impl="reference", **options)


def test_the_reference_refuses_dropout() -> None:
    with pytest.raises(
        UnsupportedError, match=r'impl="reference" has no dropout, and dropout=0\.5 was given'
    ):
        ops.attention(*tensors("randn"), impl="reference", dropout=0.5)
