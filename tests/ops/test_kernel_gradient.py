"""The kernel's gradients over every mask, option, dtype and kind of input, held to the formula in float64."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.kernels.geometry import STRETCH
from headwise.masks import Causal, Lengths
from headwise.ops import kernel

from ..attention_cases import KINDS, Case, all_masks, all_options, laid_out, poisoned, tensors
from ..naive import gradients, naive_attention
from .gradient_formula import Upstream
from .gradient_ways import (
    NAMES,
    Differentiate,
    assert_same_gradients,
    by_formula,
    by_kernel,
    call_of,
    hold,
    upstream_of,
    without_gates,
)

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SIZES = ((29, STRETCH + 3), (STRETCH + 3, STRETCH + 3))
"""More rows than a block of them, more keys than a stretch."""
REFUSED = ("float, everything", "float and window, sinks", "float and window, everything")


def masks_of(num_heads: int, seq_len: int, kv_len: int) -> dict[str, Any]:
    """Return one mask of each kind; those of lengths end in both stretches of the keys, or at the first."""
    found = all_masks(2, num_heads, seq_len, kv_len)
    found["lengths"], found["causal and lengths"] = Lengths([0, 90]), Causal() & Lengths([kv_len, 77])
    found["lengths left"] = Lengths([kv_len - 1, 41], padding="left")
    return found


@cache
def gradient_cases(dtype: torch.dtype) -> list[tuple[Case, Upstream]]:
    """Return every mask with every option, the kinds of input and sizes taking turns; poison where hidden."""
    found: list[tuple[Case, Upstream]] = []
    number = 0
    for mask_name in sorted({name for sizes in SIZES for name in masks_of(1, *sizes)}):
        for option_name in all_options(2, 6, 1, 1):
            number += 1
            turns = (SIZES[number % 2], SIZES[1 - number % 2])
            sizes = next(each for each in turns if mask_name in masks_of(1, *each))
            name = f"{mask_name}, {option_name}, {KINDS[number % 3]}, {sizes}"
            if option_name == "gates" or name.startswith(REFUSED):
                continue
            options = without_gates(all_options(2, 6, *sizes)[option_name])
            case = case_of(name, number, sizes, dtype, {"mask": masks_of(6, *sizes)[mask_name], **options})
            found.append((case, upstream_of(case, logsumexp=number % 4 > 0)))
    return found


def case_of(
    name: str, number: int, sizes: tuple[int, int], dtype: torch.dtype, options: dict[str, Any]
) -> Case:
    made = tensors(
        KINDS[number % 3],
        seq_len=sizes[0],
        kv_len=sizes[1],
        value_head_dim=(11, 17)[number % 2],
        dtype=dtype,
        seed=number,
    )
    case = poisoned(Case(name, *made, options))
    return Case(
        case.name, *(laid_out(each, "sliced") for each in (case.query, case.key, case.value)), options
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_mask_with_every_option(dtype: torch.dtype) -> None:
    cases = gradient_cases(dtype)
    for case, upstream in cases if dtype == torch.float32 else cases[DTYPES.index(dtype) % 2 :: 2]:
        hold(case, upstream)


def test_what_is_left_out_is_what_the_kernel_refuses() -> None:
    for name in REFUSED:
        mask_name, option_name = name.rsplit(", ", 1)
        options = all_options(2, 6, *SIZES[0])[option_name]
        mask = masks_of(6, *SIZES[0])[mask_name]
        case = Case(name, *tensors("randn", seq_len=29, kv_len=STRETCH + 3), {"mask": mask, **options})
        assert any("sinks beside several biases" in reason for reason in kernel.why_not(call_of(case)))
    assert len(gradient_cases(torch.float32)) == len(masks_of(1, *SIZES[0]) | masks_of(1, *SIZES[1])) * 7 - 3


def test_the_formula_is_what_autograd_finds() -> None:
    """The judge itself: in float64 its gradients are those of naive attention by autograd."""
    for case, upstream in gradient_cases(torch.float32):
        if upstream.logsumexp is None and "huge" not in case.name:
            clean = [each.double().nan_to_num() for each in (case.query, case.key, case.value)]
            options = {**case.options}

            def naive(*leaves: Tensor, given: dict[str, Any] = options) -> Tensor:
                return naive_attention(*leaves, **given).output

            found = by_formula(case, upstream, dtype=torch.float64)
            expected = gradients(naive, clean, upstream.output.double())
            for name, one, other in zip(NAMES, found, expected, strict=False):
                torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9, msg=f"{name} of {case.name}")


def test_the_formula_has_the_gradients_of_logsumexp_bias_and_sinks() -> None:
    """By differences: what no autograd of naive attention here gives."""
    made = tuple(each.double() for each in tensors("randn", seq_len=3, kv_len=5, head_dim=2))
    bias, sinks = torch.randn(6, 1, 5, dtype=torch.float64), torch.randn(6, dtype=torch.float64)
    case = Case("differences", *made, {"bias": bias, "sinks": sinks, "softcap": 1.1, "mask": Causal()})
    upstream = Upstream(*(each.double() for each in upstream_of(case) if each is not None))

    def loss() -> Tensor:
        output, logsumexp = naive_attention(*made, **case.options)
        assert upstream.logsumexp is not None
        return (output * upstream.output).sum() + (logsumexp * upstream.logsumexp).sum()

    found = by_formula(case, upstream)
    assert found.bias is not None
    assert found.sinks is not None
    of_bias = found.bias.sum_to_size(1, *bias.shape)
    checked = zip((*made, bias, sinks), (*found[:3], of_bias, found.sinks.sum(0)), strict=True)
    for tensor, gradient in checked:
        assert gradient is not None
        for place in range(0, tensor.numel(), 3):
            number = tensor.view(-1)[place]
            before = number.item()
            number.fill_(before + 1e-5)
            above = loss()
            number.fill_(before - 1e-5)
            slope = (above - loss()) / 2e-5
            number.fill_(before)
            torch.testing.assert_close(gradient.reshape(-1)[place], slope, rtol=1e-6, atol=1e-7)


def test_each_gradient_alone_has_the_bits_it_has_among_all() -> None:
    bias, sinks = torch.randn(1, 6, 1, STRETCH + 3), torch.randn(6)
    made = tensors("peaked", seq_len=29, kv_len=STRETCH + 3)
    for options in (
        {"bias": bias, "sinks": sinks, "softcap": 2.0, "mask": Causal()},
        {"bias": bias[..., :1]},
    ):
        case = Case("each alone", *made, options)
        upstream = upstream_of(case)
        together = by_kernel(case, upstream)
        for name in [*NAMES[:4], *(["sinks"] if "sinks" in options else [])]:
            alone = by_kernel(case, upstream, wanted=[name])
            expected = together._replace(**{other: None for other in NAMES if other != name})
            assert_same_gradients(alone, expected, f"{name} alone")


@pytest.mark.parametrize("dtype", DTYPES)
def test_of_the_output_or_of_logsumexp_alone(dtype: torch.dtype) -> None:
    made = tensors("randn", seq_len=29, kv_len=STRETCH + 3, dtype=dtype)
    case = Case("alone", *made, {"mask": Causal(), "sinks": torch.randn(6)})
    upstream = upstream_of(case)
    hold(case, upstream._replace(logsumexp=None))
    hold(case, upstream._replace(output=torch.zeros_like(upstream.output)))
    zero = by_kernel(case, upstream._replace(output=torch.zeros_like(upstream.output), logsumexp=None))
    assert all(each is None or (each == 0).all() for each in zero)


def is_caught(differentiate: Differentiate, cases: list[tuple[Case, Upstream]]) -> bool:
    """Return whether any case tells a wrong backward pass from a right one."""
    for case, upstream in cases:
        try:
            hold(case, upstream, differentiate=differentiate)
        except AssertionError:
            return True
    return False
