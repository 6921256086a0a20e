"""The kernel's gradients of biases of every shape and size, sinks, softcaps, scales and dropout."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.kernels.geometry import STRETCH
from headwise.masks import Causal, Dense, Window

from ..attention_cases import KINDS, Case, tensors
from .gradient_ways import assert_same_gradients, by_kernel, hold, hold_by_caps, upstream_of

SEQ_LEN, KV_LEN = 29, STRETCH + 3
MADE = {"seq_len": SEQ_LEN, "kv_len": KV_LEN}


def asked(kind: str = "randn", *, dtype: torch.dtype = torch.float32, **options: Any) -> Case:
    return Case(f"{[*options]}", *tensors(kind, **MADE, dtype=dtype), options)


# --- biases


@pytest.mark.parametrize("shape", [*product((1, 2), (1, 6), (1, SEQ_LEN), (1, KV_LEN))], ids=str)
def test_a_bias_of_every_broadcast_shape(shape: tuple[int, ...]) -> None:
    bias = torch.randn(shape)
    hold(asked(bias=bias, mask=Causal()))
    hold(asked("peaked", bias=bias, sinks=torch.randn(6), softcap=2.0, mask=Window(left=60, right=20)))


@pytest.mark.parametrize("shape", [(1, 1, 1, KV_LEN), (1, 6, 1, KV_LEN), (2, 1, 1, KV_LEN)], ids=str)
@pytest.mark.parametrize("num_kv_heads", [1, 6])
def test_a_bias_that_many_rows_share_keeps_its_digits(shape: tuple[int, ...], num_kv_heads: int) -> None:
    """Thousands of numbers, one after the other, would lose half of them."""
    made = tensors("randn", num_kv_heads=num_kv_heads, seq_len=1031, kv_len=KV_LEN, head_dim=16)
    hold(Case(f"bias {shape}", *made, {"bias": torch.randn(shape)}))


def laid_out_biases() -> dict[str, Tensor]:
    """Return biases of all kinds of strides."""
    return {
        "keys far apart": torch.randn(1, 6, KV_LEN, SEQ_LEN).mT,
        "every second key": torch.randn(1, 6, SEQ_LEN, 2 * KV_LEN)[..., ::2],
        "axes in another order": torch.randn(KV_LEN, 6, SEQ_LEN, 2).permute(3, 1, 2, 0),
        "heads inside": torch.randn(2, SEQ_LEN, 6, KV_LEN).transpose(1, 2),
        "expanded": torch.randn(1, 6, 1, KV_LEN).expand(2, 6, SEQ_LEN, KV_LEN),
        "expanded along the keys": torch.randn(2, 6, SEQ_LEN, 1).expand(2, 6, SEQ_LEN, KV_LEN),
        "with a minus sign put off": torch._neg_view(torch.randn(2, 6, SEQ_LEN, KV_LEN)),
    }


@pytest.mark.parametrize("name", laid_out_biases())
def test_a_bias_of_any_strides(name: str) -> None:
    bias = laid_out_biases()[name]
    case = asked(bias=bias, mask=Causal())
    hold(case)
    contiguous = Case(case.name, case.query, case.key, case.value, {**case.options, "bias": bias.clone()})
    upstream = upstream_of(case)
    assert_same_gradients(by_kernel(case, upstream), by_kernel(contiguous, upstream), name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [-1e30, -1000.0, 1000.0, 1e30])
def test_rows_that_a_large_bias_moves_as_a_whole(size: float, dtype: torch.dtype) -> None:
    """torch's CPU kernel gives a row whose keys all lie at a large negative bias seq_len times too much."""
    bias = torch.zeros(1, 1, SEQ_LEN, KV_LEN)
    bias[:, :, 3:9], bias[:, :, 27] = size, size
    hold(asked(bias=bias, mask=Causal(), dtype=dtype))
    moved, plain = asked(bias=bias), asked(bias=torch.zeros_like(bias))
    upstream = upstream_of(plain)
    for one, other in zip(by_kernel(moved, upstream), by_kernel(plain, upstream), strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other), "as if it were not there, to the bit"


def test_minus_infinity_in_a_bias_hides() -> None:
    bias = torch.randn(1, 6, SEQ_LEN, KV_LEN)
    bias[:, :, :, 40:70], bias[:, 2, 5], bias[:, :, 11, 64:] = -torch.inf, -torch.inf, -torch.inf
    bias[torch.rand(bias.shape) < 0.2] = -torch.inf
    case = asked(bias=bias, mask=Causal(), sinks=torch.randn(6))
    hold(case)
    found = by_kernel(case, upstream_of(case))
    assert found.bias is not None
    assert (found.bias[bias == -torch.inf] == 0).all()
    assert found.query is not None
    assert (found.query[:, 2, 5] == 0).all()


def test_several_biases_have_the_gradient_of_their_sum() -> None:
    mask = torch.randn(SEQ_LEN, KV_LEN, dtype=torch.float64)
    mask[3] = -torch.inf
    hold(asked(mask=mask, bias=torch.randn(6, 1, KV_LEN)))
    hold(
        asked(
            mask=Causal() & mask.float() & (torch.rand(6, 1, KV_LEN) < 0.7), bias=torch.randn(2, 1, 1, KV_LEN)
        )
    )


def test_dense_masks_of_every_broadcast_shape() -> None:
    for shape in product((1, 2), (1, 6), (1, SEQ_LEN), (1, KV_LEN)):
        mask = torch.rand(shape) < 0.6
        hold(asked(mask=mask, sinks=torch.randn(6)))
        both = asked("peaked", mask=Dense(mask) & Window(left=70, right=9), bias=torch.randn(SEQ_LEN, KV_LEN))
        hold_by_caps(both, upstream_of(both))


# --- sinks, softcaps, scales


@pytest.mark.parametrize("kind", KINDS)
def test_sinks_that_take_nearly_all_and_nearly_nothing(kind: str) -> None:
    sinks = torch.tensor([0.0, 12.0, 60.0, -60.0, 1e30, -1e30])
    hold(asked(kind, sinks=sinks, mask=Causal()))
    hold(asked(kind, sinks=sinks, bias=torch.full((SEQ_LEN, 1), -50.0)))
    hold(asked(kind, sinks=sinks[[1, 1, 2, 2, 1, 2]], softcap=3.0))


def test_sinks_with_a_minus_sign_put_off() -> None:
    sinks = torch.randn(6)
    case, negative = asked(sinks=-sinks), asked(sinks=torch._neg_view(sinks))
    upstream = upstream_of(case)
    assert_same_gradients(by_kernel(negative, upstream), by_kernel(case, upstream), "sinks")


@pytest.mark.parametrize("kind", ["randn", "peaked"])
@pytest.mark.parametrize("softcap", [1e-3, 0.1, 1.0, 30.0, 1e30])
def test_softcaps_small_and_large_beside_the_scores(kind: str, softcap: float) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        case = asked(kind, softcap=softcap, mask=Causal(), dtype=dtype)
        if softcap < 0.1:  # what is left of the gradient hangs on the last digits of scores near 0
            hold_by_caps(case, upstream_of(case))
        else:
            hold(case)


@pytest.mark.parametrize("distance", [3.0, 6.0, 9.0])
def test_scores_that_all_lie_at_the_softcap(distance: float) -> None:
    """What is left of the gradient is of the size of 1 - tanh, which has to keep its digits."""
    case = asked(softcap=1.0, scale=1.0)
    query, key = 0.1 * case.query, 0.1 * case.key
    query[..., 0], key[..., 0] = 1.0, distance
    hold(Case("at the softcap", query, key, case.value, case.options))


@pytest.mark.parametrize("scale", [0.0, -0.4, 1e-20, 3.0])
def test_scales_of_any_sign_and_size(scale: float) -> None:
    hold(asked(scale=scale, mask=Causal()))
    hold(asked(scale=scale, softcap=2.0, sinks=torch.randn(6)))


# --- dropout


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.97])
def test_dropout_goes_by_the_same_factors(dropout: float, dtype: torch.dtype) -> None:
    boolean = torch.rand(2, 1, SEQ_LEN, KV_LEN) < 0.7
    for number, options in enumerate(
        (
            {"mask": Causal()},
            {"mask": boolean, "sinks": torch.randn(6), "softcap": 2.0},
            {"bias": torch.randn(6, 1, KV_LEN), "mask": Window(left=40, right=30)},
        )
    ):
        hold(asked(KINDS[number], dropout=dropout, dtype=dtype, **options))


def test_dropout_of_keys_in_several_stretches_and_tiles() -> None:
    made = tensors("randn", seq_len=67, kv_len=515, num_heads=4, num_kv_heads=1)
    hold(Case("dropout", *made, {"dropout": 0.2, "mask": Causal()}))
