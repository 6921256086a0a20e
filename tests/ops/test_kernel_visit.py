"""Observation in the kernel: every field by its definition, where tiles, chunks, groups and widths end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.evidence import Collect, Evidence
from headwise.masks import Causal, Dense, Lengths, Packed, Window
from headwise.ops import kernel_visit

from ..attention_cases import LAYOUTS, Case, all_masks, all_options, laid_out, poisoned, tensors
from ..evidence_oracle import hold_evidence
from .observe_ways import by_visit

EVERYTHING = Collect(
    weights=True,
    map_size=7,
    top_k=4,
    offsets=[2, 0, 255, 13],
    rows=[-1, 0],
    received=True,
    pairs=[(0, 2)],
    local_window=5,
)


def held(case: Case, collect: Collect = EVERYTHING, **options: Any) -> Evidence[Tensor]:
    return hold_evidence(case, collect, observe=by_visit, **options)


def few(kind: str = "randn", **sizes: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return tensors of one batch element and three query heads, unless said otherwise."""
    return tensors(kind, **{"batch": 1, "num_heads": 3, "num_kv_heads": 1, **sizes})


@pytest.mark.parametrize("kv_len", [255, 256, 257, 515])
@pytest.mark.parametrize("mask", [None, Causal(), Window.of(131)], ids=["full", "causal", "window"])
def test_the_edges_of_tiles(kv_len: int, mask: Any) -> None:
    held(Case("tiles", *few("peaked", kv_len=kv_len), {"mask": mask}))


@pytest.mark.parametrize("seq_len", [1, 15, 16, 17, 33, 97])
@pytest.mark.parametrize("kv_len", [5, 41])
def test_the_edges_of_chunks(seq_len: int, kv_len: int) -> None:
    collect = replace(EVERYTHING, rows=[-1])
    held(Case("chunks", *few(seq_len=seq_len, kv_len=kv_len), {"mask": Causal()}), collect)


@pytest.mark.parametrize("num_kv_heads", [1, 2, 3, 6])
def test_groups_of_heads(num_kv_heads: int) -> None:
    made = few(num_heads=6, num_kv_heads=num_kv_heads, seq_len=33, kv_len=37)
    held(Case("groups", *made, {"mask": Causal()}))


@pytest.mark.parametrize("head_dim", [1, 3, 64, 130])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_widths_and_element_types(head_dim: int, dtype: torch.dtype) -> None:
    made = few(head_dim=head_dim, value_head_dim=7, dtype=dtype, seq_len=19, kv_len=23)
    held(Case("widths", *made, {"mask": Causal()}))


@pytest.mark.parametrize("mask_name", all_masks(2, 3, 17, 259))
def test_every_mask_over_more_than_a_tile(mask_name: str) -> None:
    made = few(batch=2, num_heads=3, seq_len=17, kv_len=259)
    mask = all_masks(2, 3, 17, 259)[mask_name]
    held(poisoned(Case(mask_name, *made, {"mask": mask})), replace(EVERYTHING, weights=False))


@pytest.mark.parametrize("mask", [Packed([20, 0, 30, 11]), Packed([1, 52, 8]) & Causal()])
def test_packed_documents(mask: Any) -> None:
    held(poisoned(Case("packed", *few("peaked", seq_len=61, kv_len=61), {"mask": mask})))


@pytest.mark.parametrize("option_name", all_options(2, 6, 18, 261))
def test_every_option_over_more_than_a_tile(option_name: str) -> None:
    made = few(num_heads=6, num_kv_heads=2, seq_len=18, kv_len=261)
    options = all_options(1, 6, 18, 261)[option_name]
    held(Case(option_name, *made, {"mask": Causal(), **options}), replace(EVERYTHING, weights=False))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides_and_poison_around_them(layout: str) -> None:
    made = [laid_out(each, layout) for each in few(batch=2, seq_len=19, kv_len=35)]
    mask = (torch.randn(3, 19, 35) < 1).mT.contiguous().mT
    bias = laid_out(torch.randn(1, 3, 19, 35), layout)
    held(Case(layout, *made, {"mask": Dense(mask, axes="hqk"), "bias": bias}))


def test_hidden_nan_and_infinity_do_not_leak() -> None:
    query, key, value = few(batch=2, seq_len=21, kv_len=300)
    key[0, :, 270:], value[0, :, 270:] = torch.nan, torch.nan
    key[1, :, :7], value[1, :, :7] = torch.inf, -torch.inf
    visible = torch.ones(2, 21, 300, dtype=torch.bool)
    visible[0, :, 270:] = visible[1, :, :7] = False
    for mask in (Dense(visible, axes="bqk"), Dense(visible.float().log(), axes="bqk")):
        held(Case("hidden", query, key, value, {"mask": mask}))


def test_what_is_written_is_all_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's results lie in memory that held something else, of heads not reported too."""
    monkeypatch.setattr(kernel_visit, "_floats", lambda *shape: torch.full(shape, torch.nan))
    monkeypatch.setattr(kernel_visit, "_integers", lambda *shape: torch.full(shape, -77))
    made = few(batch=2, num_heads=6, num_kv_heads=3, seq_len=17, kv_len=19)
    options = {"mask": Causal() & Lengths([0, 11], padding="left"), "sinks": torch.randn(6)}
    held(Case("written", *made, options), replace(EVERYTHING, heads=[3, 0]))


@pytest.mark.parametrize("heads", [[5], [5, 0, 3], [4, 5, 0, 1, 2, 3]])
def test_heads_in_any_order_and_pairs_across_kv_heads(heads: list[int]) -> None:
    mask = torch.randn(2, 6, 17, 23) < 0.7
    made = few("peaked", batch=2, num_heads=6, num_kv_heads=2, seq_len=17, kv_len=23)
    options = {"mask": mask, "bias": torch.randn(6, 17, 23), "sinks": torch.randn(6)}
    options["bias"] = Dense(options["bias"], axes="hqk")
    options["head_gates"] = torch.randn(2, 6)
    collect = replace(EVERYTHING, heads=heads, pairs=[(5, 0), (1, 4), (2, 1)])
    held(Case("heads", *made, options), collect)


@pytest.mark.parametrize("map_size", [1, 8, 11, 24, 25, 60, 1000])
def test_maps_of_any_size(map_size: int) -> None:
    made = few(seq_len=24, kv_len=60)
    held(Case("map", *made, {"mask": Causal()}), Collect(map_size=map_size))


def test_a_map_whose_cells_end_inside_tiles_and_chunks() -> None:
    made = few(num_heads=2, seq_len=67, kv_len=521)
    held(Case("map", *made, {"mask": Window(left=300, right=0)}), Collect(map_size=10, received=True))


@pytest.mark.parametrize("scale", [0.0, 30.0])
def test_equal_and_vanishing_weights_among_the_largest(scale: float) -> None:
    """Keys of equal weight come in their order, and those whose weight is 0 in float32 come last."""
    # Whole numbers, so that scores are exact: in hundreds their rounding would show in the entropy.
    made = [each.round() for each in few("peaked", seq_len=19, kv_len=280)]
    found = held(Case("top", *made, {"mask": Causal(), "scale": scale}), Collect(top_k=277))
    assert found.top_weights is not None
    assert found.top_keys is not None
    equal = (found.top_weights.diff(dim=-1) == 0) & (found.top_keys[..., 1:] >= 0)
    assert equal.any()
    assert (found.top_keys.diff(dim=-1)[equal] > 0).all()
    visible = torch.arange(262, 281)
    assert torch.equal((found.top_keys >= 0).sum(-1)[0, 0], visible.clamp_max(277))


@pytest.mark.parametrize("local_window", [0, 1, 2**31 - 1])
def test_windows_of_nothing_and_of_everything(local_window: int) -> None:
    made = few(seq_len=18, kv_len=270)
    found = held(Case("local", *made, {"mask": Causal()}), Collect(local_window=local_window))
    if local_window == 2**31 - 1:
        torch.testing.assert_close(found.local, torch.ones_like(found.local))


@pytest.mark.parametrize("first_key", [[-1, -1], [258, -3], [0, 263]])
def test_the_first_token_wherever_it_is(first_key: list[int]) -> None:
    case = Case("first", *few(batch=2, seq_len=9, kv_len=264), {"mask": Causal()})
    held(case, Collect(), first_key=first_key)


def test_rows_beside_all_weights_are_the_same_rows() -> None:
    case = Case("rows", *few(seq_len=17, kv_len=258), {"mask": Causal()})
    found = held(case, Collect(weights=True, rows=[5, -1, 0]))
    assert found.weights is not None
    assert found.row_weights is not None
    assert torch.equal(found.row_weights, found.weights[:, :, [5, -1, 0]])
