from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise import ops

from ..attention_cases import (
    KINDS,
    LAYOUTS,
    Case,
    all_cases,
    all_masks,
    all_options,
    assert_attends,
    laid_out,
    poisoned,
    tensors,
)
from .ways import DIFFERENTIABLE, WAYS

OPTION_NAMES = sorted(all_options(2, 6, 5, 7))


@pytest.mark.parametrize("way", ["attention", "attention_with_logsumexp"])
def test_every_mask_with_every_option(way: str) -> None:
    for case in all_cases(torch.float32):
        assert_attends(WAYS[way], case)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("way", ["attention", "attention_with_logsumexp"])
def test_other_dtypes(way: str, dtype: torch.dtype) -> None:
    for case in all_cases(dtype)[::7]:
        assert_attends(WAYS[way], case)


@pytest.mark.parametrize("way", ["observe", "reference"])
def test_other_ways_in(way: str) -> None:
    for case in all_cases(torch.float32)[::5]:
        assert_attends(WAYS[way], case)


# Around the tile edges of torch's kernel (32 and more rows, 512 keys) and of any kernel with powers of two.
@pytest.mark.parametrize(("seq_len", "kv_len"), [(1, 513), (31, 33), (32, 512), (33, 511), (65, 64), (17, 1)])
@pytest.mark.parametrize("mask_name", ["none", "causal", "window", "lengths left", "boolean", "float"])
def test_tile_edges(seq_len: int, kv_len: int, mask_name: str) -> None:
    options = {"mask": all_masks(1, 2, seq_len, kv_len)[mask_name]}
    for kind in KINDS:
        sizes = {"batch": 1, "num_heads": 2, "num_kv_heads": 1, "seq_len": seq_len, "kv_len": kv_len}
        case = poisoned(Case(f"{mask_name} {kind}", *tensors(kind, **sizes), options))
        assert_attends(WAYS["attention"], case)


@st.composite
def drawn_cases(draw: st.DrawFn) -> Case:
    batch, num_kv_heads = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    num_heads = num_kv_heads * draw(st.sampled_from([1, 2, 4, 7]))
    seq_len, kv_len, head_dim = draw(st.integers(1, 19)), draw(st.integers(3, 23)), draw(st.integers(1, 13))
    mask_name = draw(st.sampled_from(sorted(all_masks(3, 2, 5, 5))))
    if mask_name.startswith("packed"):
        seq_len = kv_len
    made = tensors(
        draw(st.sampled_from(KINDS)),
        batch=batch,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        seq_len=seq_len,
        kv_len=kv_len,
        head_dim=head_dim,
        value_head_dim=draw(st.sampled_from([head_dim, 7])),
        dtype=draw(st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16])),
    )
    layouts = [draw(st.sampled_from(LAYOUTS)) for _ in made]
    options = {
        "mask": all_masks(batch, num_heads, seq_len, kv_len)[mask_name],
        **all_options(batch, num_heads, seq_len, kv_len)[draw(st.sampled_from(OPTION_NAMES))],
    }
    name = f"{mask_name}, {layouts}"
    return Case(name, *(laid_out(*each) for each in zip(made, layouts, strict=True)), options)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(case=drawn_cases(), way=st.sampled_from(DIFFERENTIABLE))
def test_shapes_strides_masks_and_dtypes_in_any_combination(case: Case, way: str) -> None:
    assert_attends(WAYS[way], case)


def test_torch_named_is_what_auto_takes() -> None:
    made = tensors("randn")
    attend: Callable[..., torch.Tensor] = ops.attention
    assert torch.equal(attend(*made, impl="torch"), attend(*made))
