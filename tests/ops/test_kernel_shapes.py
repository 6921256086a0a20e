"""The CPU kernel over all small shapes, unusual strides and empty tensors."""

from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor

from headwise.masks import Causal, Lengths

from ..attention_cases import tensors
from .bits import assert_same_bits
from .exact import assert_near, in_float64
from .ways import by_kernel


# Few rows beside many keys are read as they lie, others are packed; test_kernel_ways has the border.
@pytest.mark.parametrize("group_size", range(1, 17))
def test_every_group_size_with_every_length_around_the_border(group_size: int) -> None:
    for seq_len in range(1, 31):
        made = tensors(
            "randn",
            batch=1,
            num_heads=2 * group_size,
            num_kv_heads=2,
            seq_len=seq_len,
            kv_len=37,
            head_dim=9,
            value_head_dim=17,
            seed=seq_len,
        )
        found, exact = by_kernel(*made, mask=Causal()), in_float64(*made, mask=Causal())
        for field, one, other in zip(found._fields, found, exact, strict=True):
            assert_near(one, other, f"{field} of {seq_len} queries")


@pytest.mark.parametrize("seq_len", [1, 3, 7, 30])
@pytest.mark.parametrize("working", range(8))
def test_heads_that_are_gated_to_0_leave_any_number_of_others(working: int, seq_len: int) -> None:
    made = tensors("randn", num_heads=14, num_kv_heads=2, seq_len=seq_len, kv_len=37)
    order = torch.randperm(7)
    gates = torch.zeros(2, 14)
    gates[0, order[:working]] = torch.arange(1.0, working + 1)
    gates[1, 7 + order[:working]] = -0.5
    found = by_kernel(*made, head_gates=gates).output
    assert_near(found, in_float64(*made, head_gates=gates).output, "output")
    assert (found[gates == 0] == 0).all()


def test_a_gate_of_0_gives_0_whatever_the_head_holds() -> None:
    made = tensors("randn")
    made[2][:, 1] = torch.nan
    gates = torch.tensor([1.0, 1.0, 0.0, 0.0, 1.0, 1.0])
    found = by_kernel(*made, head_gates=gates)
    assert torch.equal(found.output[:, 2:4], torch.zeros(2, 2, 5, 11))
    assert not found.output[:, 2:4].signbit().any()
    assert found.logsumexp.isfinite().all()  # of the head as it would be


def every_third_number(tensor: Tensor) -> Tensor:
    length, width = tensor.shape[2:]
    return tensor.new_full((*tensor.shape[:2], length, 3 * width), torch.nan)[..., 1::3].copy_(tensor)


def overlapping_rows(tensor: Tensor) -> Tensor:
    batch, heads, length, width = tensor.shape
    line = torch.linspace(-2, 2, batch * heads + length + width).to(tensor.dtype)
    return line.as_strided(tensor.shape, (heads, 1, 1, 1))


# Some of them change what the tensor holds; the same in contiguous memory must give the same bits.
STRIDES: tuple[Callable[[Tensor], Tensor], ...] = (
    every_third_number,
    overlapping_rows,
    lambda tensor: tensor.mT.contiguous().mT,
    lambda tensor: tensor.permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2),
    lambda tensor: tensor[..., :1].expand_as(tensor),
    lambda tensor: tensor[:, :, :1].expand_as(tensor),
    lambda tensor: tensor.new_empty(tensor.numel() + 1)[1:].view(tensor.shape).copy_(tensor),
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("seq_len", "head_dim"), [(2, 32), (2, 33), (29, 32), (29, 33)])
def test_any_strides_give_the_bits_of_contiguous_tensors(
    dtype: torch.dtype, seq_len: int, head_dim: int
) -> None:
    made = tensors("randn", seq_len=seq_len, kv_len=35, head_dim=head_dim, dtype=dtype)
    for first, step in product(range(len(STRIDES)), (0, 1, 3)):
        strided = [STRIDES[(first + place * step) % len(STRIDES)] for place in range(3)]
        given = [change(tensor) for change, tensor in zip(strided, made, strict=True)]
        found = by_kernel(*given, mask=Causal())
        plain = by_kernel(*(tensor.contiguous() for tensor in given), mask=Causal())
        assert_same_bits(found, plain, f"strides from {first} in steps of {step}")


def test_sinks_and_gates_of_any_strides() -> None:
    made = tensors("randn")
    sinks, gates = torch.randn(12)[::2], torch.randn(6, 2).T
    one_for_all = gates[:1].expand(2, 6)
    for options in (
        {"sinks": sinks, "head_gates": gates},
        {"head_gates": one_for_all},
        {"head_gates": sinks},
    ):
        contiguous = {name: option.contiguous() for name, option in options.items()}
        assert_same_bits(by_kernel(*made, **options), by_kernel(*made, **contiguous), f"{[*options]}")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_minus_sign_that_torch_puts_off_is_applied(dtype: torch.dtype) -> None:
    query, key, value = tensors("randn", dtype=dtype)
    negative = torch._neg_view(query)
    assert negative.is_neg()
    assert_same_bits(by_kernel(negative, key, value), by_kernel(-query, key, value), "query")
    bias = torch.randn(5, 7)
    assert_same_bits(
        by_kernel(query, key, value, bias=torch._neg_view(bias)),
        by_kernel(query, key, value, bias=-bias),
        "bias",
    )


@pytest.mark.parametrize("batch", [0, 2])
@pytest.mark.parametrize("seq_len", [0, 3, 29])
@pytest.mark.parametrize("kv_len", [0, 5])
@pytest.mark.parametrize("value_head_dim", [0, 7])
def test_empty_tensors(batch: int, seq_len: int, kv_len: int, value_head_dim: int) -> None:
    sizes = {"batch": batch, "seq_len": seq_len, "kv_len": kv_len, "value_head_dim": value_head_dim}
    made = tensors("randn", **sizes)
    bias = torch.randn(seq_len, kv_len)
    for options in (
        {},
        {"mask": Causal()},
        {"mask": Lengths([kv_len] * batch)},
        {"mask": torch.ones(seq_len, kv_len, dtype=torch.bool)},
        {"bias": bias, "sinks": torch.randn(6), "head_gates": torch.randn(batch, 6)},
        {"bias": bias, "mask": bias},
    ):
        found, exact = by_kernel(*made, **options), in_float64(*made, **options)
        assert found.output.shape == (batch, 6, seq_len, value_head_dim)
        assert found.logsumexp.shape == (batch, 6, seq_len)
        torch.testing.assert_close(found.output.double(), exact.output, rtol=0, atol=1e-5)
        torch.testing.assert_close(found.logsumexp.double(), exact.logsumexp, rtol=0, atol=1e-5)
