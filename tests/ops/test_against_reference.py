import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ..attention_cases import (
    KINDS,
    LAYOUTS,
    Case,
    all_masks,
    all_options,
    laid_out,
    poisoned,
    tensors,
)
from .suite import cases
from .ways import WAYS, computes, hold

OPTION_NAMES = sorted(all_options(2, 6, 5, 7))


@pytest.mark.parametrize("way", ["torch", "plain torch", "cpu"])
def test_every_mask_with_every_option(way: str) -> None:
    taken = [hold(WAYS[way], case) for case in cases()]
    assert len(taken) == 448
    # Sinks beside a float mask and a bias, or beside a float64 mask.
    assert taken.count(False) == (9 if way == "cpu" else 0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("way", ["torch", "plain torch", "cpu"])
def test_other_dtypes(way: str, dtype: torch.dtype) -> None:
    taken = [hold(WAYS[way], case) for case in cases(dtype)[::7]]
    assert any(taken) == computes(way, dtype)


@pytest.mark.parametrize("way", ["observe", "reference"])
def test_other_ways_in(way: str) -> None:
    assert all(hold(WAYS[way], case) for case in cases()[::5])


# Around the tile edges of torch's kernel (32 and more rows, 512 keys) and of any kernel with powers of two.
@pytest.mark.parametrize(("seq_len", "kv_len"), [(1, 513), (31, 33), (32, 512), (33, 511), (65, 64), (17, 1)])
@pytest.mark.parametrize("mask_name", ["none", "causal", "window", "lengths left", "boolean", "float"])
@pytest.mark.parametrize("way", ["torch", "cpu"])
def test_tile_edges(way: str, seq_len: int, kv_len: int, mask_name: str) -> None:
    options = {"mask": all_masks(1, 2, seq_len, kv_len)[mask_name]}
    for kind in KINDS:
        sizes = {"batch": 1, "num_heads": 2, "num_kv_heads": 1, "seq_len": seq_len, "kv_len": kv_len}
        assert hold(WAYS[way], poisoned(Case(f"{mask_name} {kind}", *tensors(kind, **sizes), options)))


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


@settings(max_examples=300, derandomize=True, deadline=None)
@given(case=drawn_cases(), way=st.sampled_from([*WAYS]))
def test_shapes_strides_masks_and_dtypes_in_any_combination(case: Case, way: str) -> None:
    hold(WAYS[way], case)
