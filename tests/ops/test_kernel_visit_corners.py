"""Observation in the kernel beside plain torch, where numbers end and on any call that Hypothesis draws."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headwise.evidence import Collect, Evidence
from headwise.masks import Causal, Dense

from ..attention_cases import KINDS, LAYOUTS, Case, all_masks, all_options, laid_out, tensors
from ..tolerance import assert_within_rule
from .observe_ways import by_plain, by_visit

EVERYTHING = Collect(map_size=5, top_k=3, offsets=[2, 0], rows=[-1], received=True, local_window=3)
PICKED = ("largest_key", "top_keys")


def fields(evidence: Evidence[Tensor]) -> dict[str, Tensor]:
    return {name: each for name, each in vars(evidence).items() if isinstance(each, Tensor)}


def hold_to_float64(case: Case, collect: Collect) -> None:
    """Hold the kernel's evidence to that of plain torch in float64, and its error to plain torch's own."""
    made = (case.query, case.key, case.value)
    options = {**case.options, "collect": collect}
    found = fields(by_visit(*made, **options).evidence)
    plain = fields(by_plain(*made, **options).evidence)
    exact = fields(by_plain(*(each.double() for each in made), **options).evidence)
    assert found.keys() == plain.keys() == exact.keys()
    for name, numbers in found.items():
        if name in PICKED:
            assert torch.equal(numbers < 0, exact[name] < 0), f"{name} of {case.name}"
        elif name == "visible":
            assert torch.equal(numbers, exact[name]), f"{name} of {case.name}"
        else:
            # Beside the largest weights: a small number is held to the size of the weights it is made from.
            made_of = (found, exact, plain)
            joined = [torch.cat([each[name].ravel(), each["largest_weight"].ravel()]) for each in made_of]
            assert_within_rule(*joined, f"{name} of {case.name}")


@st.composite
def problems(draw: st.DrawFn) -> tuple[Case, Collect]:
    """Draw a call over up to three tiles, and what to collect of it."""
    num_kv_heads = draw(st.integers(1, 2))
    num_heads = num_kv_heads * draw(st.sampled_from([1, 3]))
    batch, seq_len = draw(st.integers(1, 2)), draw(st.integers(1, 40))
    kv_len = draw(st.integers(2, 60) | st.sampled_from([255, 256, 257, 515]))
    mask_name = draw(st.sampled_from(sorted(all_masks(2, 1, 5, 7))))
    if mask_name == "packed cross":
        kv_len, seq_len = max(kv_len, 3), max(seq_len, 2)
    made = tensors(
        draw(st.sampled_from(KINDS)),
        batch=batch,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        seq_len=seq_len,
        kv_len=kv_len,
        head_dim=draw(st.sampled_from([1, 3, 16, 64, 130])),
        dtype=draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float16])),
        seed=draw(st.integers(0, 99)),
    )
    masks, options = (make(batch, num_heads, seq_len, kv_len) for make in (all_masks, all_options))
    # Where queries and keys are as many there is another kind of packing in its place.
    mask = masks.get(mask_name, masks["causal"])
    option_name, layout = draw(st.sampled_from(sorted(options))), draw(st.sampled_from(LAYOUTS))
    collect = Collect(
        weights=draw(st.booleans()),
        map_size=draw(st.none() | st.integers(1, 70)),
        top_k=draw(st.none() | st.integers(1, 14)),
        offsets=draw(st.lists(st.integers(0, 300), unique=True, max_size=3)),
        rows=draw(st.lists(st.integers(0, seq_len - 1), unique=True, max_size=3)),
        received=draw(st.booleans()),
        heads=draw(st.none() | st.lists(st.integers(0, num_heads - 1), unique=True, min_size=1)),
        pairs=[(num_heads - 1, 0)] if num_heads > 1 and draw(st.booleans()) else [],
        local_window=draw(st.integers(0, 300)),
    )
    name = f"{mask_name}, {option_name}, {layout}, {seq_len} x {kv_len}, {collect}"
    given = [laid_out(each, layout) for each in made]
    return Case(name, *given, {"mask": mask, **options[option_name]}), collect


@settings(max_examples=150, derandomize=True, deadline=None)
@given(problem=problems())
def test_any_call_as_in_float64(problem: tuple[Case, Collect]) -> None:
    hold_to_float64(*problem)


def assert_not_finite_alike(*made: Tensor, collect: Collect = EVERYTHING, **options: Any) -> Evidence[Tensor]:
    """Hold the kernel to plain torch: NaN in the same places, other numbers within rounding."""
    found, plain = (way(*made, **options, collect=collect).evidence for way in (by_visit, by_plain))
    for name, numbers in fields(plain).items():
        if name == "top_keys":  # of several NaN any may come first
            torch.testing.assert_close(getattr(found, name) < 0, numbers < 0, msg=name)
        else:
            torch.testing.assert_close(getattr(found, name), numbers, equal_nan=True, msg=name)
    return found


HOSTILE = [torch.nan, torch.inf, -torch.inf]


@pytest.mark.parametrize("number", HOSTILE)
@pytest.mark.parametrize("sinks", [None, torch.tensor([0.3, -1.0, 2.0])])
def test_a_key_that_is_not_finite_is_seen_in_exactly_the_rows_that_see_it(number: float, sinks: Any) -> None:
    query, key, value = tensors("randn", batch=1, num_heads=3, num_kv_heads=1, seq_len=41, kv_len=270)
    key[0, 0, 240, 2] = number
    found = assert_not_finite_alike(query, key, value, mask=Causal(), sinks=sinks)
    sees = torch.arange(229, 270) >= 240
    assert not found.entropy[:, :, ~sees].isnan().any()
    assert found.entropy[:, :, sees].isnan().any()


@pytest.mark.parametrize("number", HOSTILE)
@pytest.mark.parametrize("kind", ["bias", "sinks"])
def test_a_bias_or_a_sink_that_is_not_finite(number: float, kind: str) -> None:
    made = tensors("randn", batch=1, num_heads=3, num_kv_heads=3, seq_len=18, kv_len=20)
    bias, sinks = torch.randn(1, 3, 18, 20), torch.zeros(3)
    bias[0, 1, 7, 4] = number
    sinks[2] = number
    options = {"mask": Causal(), **({"bias": bias} if kind == "bias" else {"sinks": sinks})}
    assert_not_finite_alike(*made, **options)


@pytest.mark.parametrize("sinks", [None, torch.zeros(1)])
def test_a_row_whose_scores_are_all_minus_infinity(sinks: Any) -> None:
    """Without a sink it has no softmax; beside one its weights are 0, and the first visible is largest."""
    query, key = torch.full((1, 1, 3, 5), 1e20), torch.full((1, 1, 4, 5), -1e20)
    mask = torch.tensor([[0, 0, 1, 1], [0, 1, 1, 0], [0, 0, 0, 0]]).bool()
    found = assert_not_finite_alike(query, key, torch.zeros_like(key), mask=mask, sinks=sinks)
    assert found.largest_key[0, 0].tolist() == ([-1, -1, -1] if sinks is None else [2, 1, -1])


def test_fewer_keys_than_asked_for_among_nan() -> None:
    query, key, value = tensors("randn", batch=1, num_heads=1, num_kv_heads=1, seq_len=3, kv_len=7)
    key[0, 0, 1] = torch.nan
    found = assert_not_finite_alike(query, key, value, mask=Causal(), collect=Collect(top_k=9))
    assert found.top_keys is not None
    assert found.top_keys[0, 0, 0].tolist() == [0, 1, 2, 3, 4, -1, -1]


def test_a_mask_may_hide_what_is_nan_from_some_heads() -> None:
    query, key, value = tensors("randn", batch=1, num_heads=4, num_kv_heads=2, seq_len=5, kv_len=9)
    key[0, :, 3] = torch.nan
    mask = torch.ones(4, 5, 9, dtype=torch.bool)
    mask[1, :, 3] = mask[2, :, 3] = False
    collect = Collect(pairs=[(1, 2), (0, 1), (2, 3)], received=True, map_size=3)
    found = assert_not_finite_alike(query, key, value, mask=Dense(mask, axes="hqk"), collect=collect)
    assert found.divergence is not None
    assert torch.equal(found.entropy.isnan().any(-1)[0], torch.tensor([True, False, False, True]))
    assert torch.equal(found.divergence.isnan().all(-1)[0], torch.tensor([False, True, True]))
