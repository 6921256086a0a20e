"""Gradients at the edges of stretches, tiles and blocks, of any strides, and of empty tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headwise.kernels.geometry import STRETCH, TILE
from headwise.kernels.host import BLOCK_ROWS
from headwise.masks import Causal, Lengths
from headwise.ops import kernel

from ..attention_cases import KINDS, LAYOUTS, Case, all_masks, all_options, laid_out, tensors
from .bits import threads
from .gradient_formula import Upstream
from .gradient_ways import (
    assert_same_gradients,
    by_kernel,
    call_of,
    hold,
    hold_by_caps,
    upstream_of,
    without_gates,
)
from .test_kernel_shapes import STRIDES

EDGES = sorted({edge + step for edge in (STRETCH, TILE) for step in (-1, 0, 1)})
HEADS = ((1, 1), (4, 4), (6, 2), (7, 1))
WIDTHS = (1, 5, 16, 17, 64, 80, 128, 250, 256)


@pytest.mark.parametrize("kv_len", [*EDGES, 3 * STRETCH + 1, 2 * TILE + 1])
@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_keys_around_the_edges_of_stretches_and_tiles(kv_len: int, heads: tuple[int, int]) -> None:
    sizes = {"num_heads": heads[0], "num_kv_heads": heads[1], "kv_len": kv_len}
    for seq_len in (5, kv_len):
        made = tensors("randn", batch=1, seq_len=seq_len, head_dim=16, **sizes)
        for mask in (None, Causal()):
            hold(Case(f"{mask}, {seq_len} x {kv_len}, {heads}", *made, {"mask": mask}))


@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_rows_around_the_edges_of_blocks(heads: tuple[int, int]) -> None:
    group_size = heads[0] // heads[1]
    edges = {rows // group_size + step for rows in (BLOCK_ROWS, 2 * BLOCK_ROWS) for step in (-1, 0, 1)}
    for seq_len in sorted(edges | {1, 2}):
        sizes = {"num_heads": heads[0], "num_kv_heads": heads[1], "seq_len": seq_len, "kv_len": STRETCH + 7}
        case = Case(f"{seq_len}, {heads}", *tensors("randn", **sizes), {"mask": Causal()})
        hold(case)


@pytest.mark.parametrize("number", range(len(WIDTHS)))
def test_widths_of_head_and_value(number: int) -> None:
    widths = (WIDTHS[number], WIDTHS[(number + 1) % len(WIDTHS)])
    for head_dim, value_head_dim in (widths, widths[::-1], widths[:1] * 2):
        for kind, dtype in zip(KINDS, (torch.float32, torch.bfloat16, torch.float16), strict=True):
            made = tensors(
                kind,
                seq_len=27,
                kv_len=STRETCH + 5,
                head_dim=head_dim,
                value_head_dim=value_head_dim,
                dtype=dtype,
            )
            hold(Case(f"{head_dim}, {value_head_dim}, {kind}, {dtype}", *made, {"mask": Causal()}))


@pytest.mark.parametrize("mask", [None, Causal(), Causal("upper_left")], ids=str)
@pytest.mark.parametrize(("seq_len", "kv_len"), [(61, 7), (7, 61), (300, 40), (1, 300), (50, 1), (1, 1)])
def test_more_queries_than_keys_and_fewer(seq_len: int, kv_len: int, mask: Any) -> None:
    made = tensors("randn", seq_len=seq_len, kv_len=kv_len)
    case = Case(f"{seq_len} x {kv_len}, {mask}", *made, {"mask": mask, "sinks": torch.randn(6)})
    hold_by_caps(case, upstream_of(case))


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
        {"bias": bias, "sinks": torch.randn(6)},
        {"bias": torch.randn(seq_len, 1), "sinks": torch.randn(6)},
        {"bias": torch.randn(1, kv_len), "mask": bias},
    ):
        case = Case(f"{sizes}, {[*options]}", *made, options)
        hold_by_caps(case, upstream_of(case))


def strided(upstream: Upstream, layout: str) -> Upstream:
    """Return the same upstream gradients in other memory; expanded ones are ones, as `sum` leaves them."""
    if layout == "expanded":
        one = torch.ones((), dtype=upstream.output.dtype)
        return Upstream(one.expand_as(upstream.output), None)
    output, logsumexp = laid_out(upstream.output, layout), upstream.logsumexp
    return Upstream(output, None if logsumexp is None else logsumexp.mT.contiguous().mT)


def assert_as_contiguous(case: Case, upstream: Upstream) -> None:
    """Hold the gradients to those of the same numbers in contiguous memory, bit for bit."""
    plain = Case(case.name, *(each.contiguous() for each in (case.query, case.key, case.value)), case.options)
    logsumexp = upstream.logsumexp
    given = Upstream(upstream.output.contiguous(), None if logsumexp is None else logsumexp.contiguous())
    assert_same_gradients(by_kernel(case, upstream), by_kernel(plain, given), case.name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("seq_len", "head_dim"), [(2, 32), (29, 33)])
def test_any_strides_give_the_bits_of_contiguous_tensors(
    dtype: torch.dtype, seq_len: int, head_dim: int
) -> None:
    made = tensors("randn", seq_len=seq_len, kv_len=STRETCH + 5, head_dim=head_dim, dtype=dtype)
    for first, layout in enumerate((*LAYOUTS, *LAYOUTS[:2])):
        changes = [STRIDES[(first + place) % len(STRIDES)] for place in range(3)]
        moved = [change(each) for change, each in zip(changes, made, strict=True)]
        case = Case(f"strides from {first}, {layout}", *moved, {"mask": Causal()})
        assert_as_contiguous(case, strided(upstream_of(case), layout))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_minus_signs_that_torch_puts_off_are_applied(dtype: torch.dtype) -> None:
    made = tensors("randn", seq_len=29, kv_len=STRETCH + 5, dtype=dtype)
    case = Case("minus", *(-each for each in made))
    upstream = upstream_of(case)
    assert upstream.logsumexp is not None
    negative = Case("minus", *map(torch._neg_view, made))
    put_off = Upstream(*(torch._neg_view(-each) for each in (upstream.output, upstream.logsumexp)))
    assert put_off.output.is_neg()
    assert_same_gradients(by_kernel(negative, put_off), by_kernel(case, upstream), "minus signs")


MASKS = sorted({*all_masks(2, 6, 5, 5), *all_masks(2, 6, 5, 7)})
OPTIONS = sorted({*all_options(1, 1, 1, 1)} - {"gates"})


@st.composite
def problems(draw: st.DrawFn) -> tuple[Case, Upstream]:
    heads = draw(st.sampled_from(HEADS))
    batch, seq_len = draw(st.integers(1, 3)), draw(st.integers(1, 60))
    kv_len = draw(st.integers(3, 50) | st.sampled_from(EDGES))
    mask_name = draw(st.sampled_from(MASKS))
    if mask_name.startswith("packed"):
        kv_len = min(kv_len, 40)
        seq_len = kv_len if mask_name != "packed cross" else min(max(seq_len, 2), kv_len - 1)
    sizes = (batch, heads[0], seq_len, kv_len)
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float16]))
    made = tensors(
        draw(st.sampled_from(KINDS)),
        batch=batch,
        num_heads=heads[0],
        num_kv_heads=heads[1],
        seq_len=seq_len,
        kv_len=kv_len,
        head_dim=draw(st.integers(1, 40) | st.sampled_from(WIDTHS)),
        value_head_dim=draw(st.integers(1, 40) | st.sampled_from(WIDTHS)),
        dtype=dtype,
        seed=draw(st.integers(0, 99)),
    )
    options = without_gates(all_options(*sizes)[draw(st.sampled_from(OPTIONS))])
    options["dropout"] = draw(st.sampled_from([0.0, 0.0, 0.4]))
    layouts = [draw(st.sampled_from(LAYOUTS)) for _ in range(4)]
    given = [laid_out(each, layout) for each, layout in zip(made, layouts[:3], strict=True)]
    case = Case(f"{mask_name}, {options}, {sizes}", *given, {"mask": all_masks(*sizes)[mask_name], **options})
    upstream = upstream_of(case, logsumexp=draw(st.booleans()))
    return case, strided(upstream, layouts[3])


@settings(max_examples=100, derandomize=True, deadline=None)
@given(problem=problems(), count=st.integers(1, 8))
def test_any_problem_is_right(problem: tuple[Case, Upstream], count: int) -> None:
    case, upstream = problem
    refusals = kernel.why_not(call_of(case))
    if refusals:
        assert all("sinks beside several biases" in reason for reason in refusals)
        return
    with threads(count):
        hold_by_caps(case, upstream)
        assert_as_contiguous(case, upstream)


def test_gradients_lie_in_memory_as_what_they_are_of() -> None:
    made = [laid_out(each, "heads_inside") for each in tensors("randn")]
    case = Case("layout", *made)
    found = by_kernel(case, upstream_of(case))
    strides: list[Any] = [each.stride() for each in found[:3] if isinstance(each, Tensor)]
    assert strides == [each.stride() for each in made]
