"""The torch operators as torch's own checks see them, on fake tensors and on the meta device."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.library import opcheck

from headwise import ops
from headwise.errors import ArgumentError, UnsupportedError
from headwise.masks import Causal, Lengths, Window
from headwise.ops import arguments
from headwise.ops.registered import ATTENTION, ATTENTION_BACKWARD, Terms

from ..attention_cases import laid_out, tensors


def terms(dtype: torch.dtype, layout: str = "contiguous", **options: Any) -> Terms:
    made = [laid_out(tensor, layout) for tensor in tensors("randn", dtype=dtype)]
    given = Terms.of(arguments.check(*made, **options))
    leaves = [tensor.detach().requires_grad_() for tensor in (given.query, given.key, given.value)]
    biases = [tensor.detach().requires_grad_() for tensor in given.additive]
    sinks = None if given.sinks is None else given.sinks.detach().requires_grad_()
    return Terms(*leaves, given.boolean, biases, sinks, *given[6:])


def everything(dtype: torch.dtype) -> dict[str, Any]:
    return {
        "mask": Causal() & Lengths([6, 7]) & (torch.rand(2, 6, 5, 7) < 0.8),
        "bias": torch.randn(1, 6, 1, 7, dtype=dtype),
        "sinks": torch.randn(6, dtype=dtype),
        "softcap": 2.0,
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_torchs_own_checks_find_nothing(dtype: torch.dtype) -> None:
    given = terms(dtype, **everything(dtype))
    opcheck(ATTENTION, (*given, "auto", True))
    results = [tensor.detach() for tensor in ATTENTION(*given, "auto", True)]
    upstream = torch.randn_like(results[0]).requires_grad_()
    of_logsumexp = torch.randn(2, 6, 5, dtype=results[1].dtype, requires_grad=True)
    opcheck(ATTENTION_BACKWARD, (*given, *results, upstream, of_logsumexp, [True] * 5))
    opcheck(ATTENTION_BACKWARD, (*given, *results, upstream, None, [False, True, False, True, False]))


@pytest.mark.parametrize("layout", ["heads_inside", "sliced", "every_second", "expanded"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fakes_lie_as_the_results_do(layout: str, dtype: torch.dtype) -> None:
    given = terms(dtype, layout, mask=Causal())
    results = [tensor.detach() for tensor in ATTENTION(*given, "auto", True)]
    checks = ("test_schema", "test_faketensor")
    opcheck(ATTENTION, (*given, "auto", True), test_utils=checks)
    upstream = torch.randn_like(results[0])
    opcheck(
        ATTENTION_BACKWARD, (*given, *results, upstream, None, [True, True, True, False]), test_utils=checks
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_meta_tensors_have_shapes_dtypes_and_gradients(dtype: torch.dtype) -> None:
    made = [tensor.to("meta").requires_grad_() for tensor in tensors("randn", value_head_dim=13, dtype=dtype)]
    gates = torch.ones(6, device="meta", requires_grad=True)
    found = ops.attention_with_logsumexp(*made, mask=Causal() & Window.of(3), head_gates=gates)
    assert (found.output.shape, found.output.dtype) == ((2, 6, 5, 13), dtype)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    assert (found.logsumexp.shape, found.logsumexp.dtype) == ((2, 6, 5), wide)
    assert found.output.is_meta
    gradients = torch.autograd.grad(found.output.sum(), [*made, gates])
    assert [(each.shape, each.dtype) for each in gradients] == [
        (each.shape, each.dtype) for each in (*made, gates)
    ]


def test_meta_tensors_are_checked() -> None:
    made = [tensor.to("meta") for tensor in tensors("randn")]
    with pytest.raises(ArgumentError, match="lengths has 3 entries, but batch is 2"):
        ops.attention(*made, mask=Lengths([1, 2, 3]))
    with pytest.raises(
        UnsupportedError, match='impl="reference" works on NumPy arrays, and the tensors hold no'
    ):
        ops.choose(*made, impl="reference")


def test_the_operator_refuses_a_mask_that_does_not_fit() -> None:
    given = terms(torch.float32, mask=Lengths([1, 7]))
    with pytest.raises(ArgumentError, match="lengths has 2 entries, but batch is 1"):
        ATTENTION(*given._replace(query=given.query[:1]), "auto", True)


def test_what_is_saved_for_the_backward_pass_does_not_grow_with_the_square() -> None:
    saved: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    made = [tensor.requires_grad_() for tensor in tensors("randn", seq_len=61, kv_len=67)]
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        for impl in ("cpu", "torch"):
            ops.attention(*made, mask=Causal(), impl=impl)
            ops.attention_with_logsumexp(*made, mask=Causal(), softcap=2.0, impl=impl)
            ops.observe(*made)
    assert saved
    assert max(tensor.numel() for tensor in saved) < 2 * 6 * 61 * 67
