"""The bits of evidence from the kernel: whatever threads, batch, other heads, strides or masks there are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from headwise import ops
from headwise.evidence import Collect, Evidence
from headwise.masks import Causal, Lengths, Window
from headwise.ops import AttentionResult

from ..attention_cases import LAYOUTS, Case, all_options, laid_out, tensors
from .bits import assert_same_bits, batch_elements, bits, kv_heads, query_heads, threads, with_dense_mask
from .observe_ways import by_visit

# Pairs of heads are compared in plain torch, which promises no bits.
COLLECT = Collect(weights=True, map_size=9, top_k=3, offsets=[5], rows=[-1], received=True, local_window=7)


def problem(mask: Any = None, **sizes: Any) -> Case:
    """Return a problem of several blocks a chunk, groups that do not divide a block, and two tiles."""
    shape = {"batch": 2, "num_heads": 10, "num_kv_heads": 2, "seq_len": 451, "kv_len": 479, "head_dim": 33}
    made = tensors("peaked", **{**shape, **sizes})
    sinks = torch.randn(made[0].shape[1], generator=torch.Generator().manual_seed(5))
    return Case("bits", *made, {"mask": Causal() if mask is None else mask, "sinks": sinks})


def observed(case: Case, collect: Collect = COLLECT) -> Evidence[Tensor]:
    return by_visit(case.query, case.key, case.value, **case.options, collect=collect).evidence


def assert_same_evidence(found: Evidence[Tensor], expected: Evidence[Tensor], *index: Any, name: str) -> None:
    """Hold every field to that expected, of which `index` says which part, to the last bit."""
    for field, whole in vars(expected).items():
        if isinstance(whole, Tensor):
            one, other = getattr(found, field), whole[index]
            assert (one.dtype, one.shape) == (other.dtype, other.shape), f"{name}: {field}"
            if one.is_floating_point():
                differs = (bits(one) != bits(other)) & ~(one.isnan() & other.isnan())
            else:
                differs = one != other
            assert not differs.any(), f"{name}: {field} differs in {int(differs.sum())} places"


def test_from_run_to_run_and_for_any_number_of_threads() -> None:
    case = problem()
    with threads(1):
        alone = observed(case)
        assert_same_evidence(observed(case), alone, name="again")
    for count in range(2, 9):
        with threads(count):
            assert_same_evidence(observed(case), alone, name=f"{count} threads")


@pytest.mark.parametrize("order", [[0], [2], [2, 0], [1, 1, 0]])
def test_for_any_batch_and_place_in_it(order: list[int]) -> None:
    case = problem(Causal() & Lengths([300, 479, 100]), batch=3, num_heads=4, head_dim=8)
    assert_same_evidence(observed(batch_elements(case, order)), observed(case), order, name=f"batch {order}")


@pytest.mark.parametrize("heads", [[0], [9], [7, 2, 3], [4, 3, 2, 1, 0]])
def test_for_any_subset_of_heads(heads: list[int]) -> None:
    case = problem()
    whole, every = observed(case), slice(None)
    some = observed(case, replace(COLLECT, heads=heads))
    assert_same_evidence(some, whole, every, heads, name=f"reported heads {heads}")
    assert_same_evidence(observed(query_heads(case, heads)), whole, every, heads, name=f"heads {heads}")


def test_for_any_subset_of_kv_heads() -> None:
    case = problem(num_heads=9, num_kv_heads=3)
    found = observed(kv_heads(case, [2, 0]))
    assert_same_evidence(found, observed(case), slice(None), [6, 7, 8, 0, 1, 2], name="KV heads 2 and 0")


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout != "expanded"])
def test_for_any_strides(layout: str) -> None:
    case = problem(num_heads=2, seq_len=67)
    given = {name: laid_out(getattr(case, name), layout) for name in ("query", "key", "value")}
    assert_same_evidence(observed(replace(case, **given)), observed(case), name=layout)


def test_with_the_mask_as_a_tensor() -> None:
    case = problem(Causal() & Window(left=300), num_heads=2, seq_len=131)
    assert_same_evidence(observed(with_dense_mask(case)), observed(case), name="mask as a tensor")


@pytest.mark.parametrize("option_name", all_options(2, 6, 5, 7))
@pytest.mark.parametrize("seq_len", [1, 70])
def test_output_and_logsumexp_are_those_of_attention(option_name: str, seq_len: int) -> None:
    made = tensors("peaked", seq_len=seq_len, kv_len=530, head_dim=64)
    options = {"mask": Causal(), **all_options(2, 6, seq_len, 530)[option_name]}
    found = by_visit(*made, **options, collect=Collect(heads=[1]))
    alone = ops.attention_with_logsumexp(*made, impl="cpu", **options)
    assert_same_bits(AttentionResult(found.output, found.logsumexp), alone, option_name)


def test_a_lost_bit_is_seen() -> None:
    case = problem(seq_len=17)
    whole = observed(case)
    bits(whole.entropy)[0, 1, 3] += 1  # in place: it is contiguous
    with pytest.raises(AssertionError, match="entropy differs in 1 places"):
        assert_same_evidence(observed(case), whole, name="once more")
