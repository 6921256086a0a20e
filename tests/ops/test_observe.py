"""Every field that `observe` fills is held to its definition on the reference's weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.evidence import OTHER_STATISTICS, STATISTICS, Collect
from headwise.masks import Causal, Dense, Lengths, Window
from headwise.ops import plain

from ..attention_cases import KINDS, LAYOUTS, Case, all_masks, all_options, laid_out, poisoned, tensors
from ..evidence_oracle import Observe, hold_evidence
from .observe_ways import every_observer

EVERYTHING = Collect(
    weights=True,
    map_size=3,
    top_k=4,
    offsets=[2, 0, 1, 50],
    rows=[-1, 0, 2],
    received=True,
    pairs=[(0, 1), (5, 2)],
    local_window=2,
)


@pytest.mark.parametrize("mask_name", all_masks(2, 6, 5, 7))
@every_observer
def test_every_field_under_every_mask(mask_name: str, observe: Observe) -> None:
    case = Case(mask_name, *tensors("peaked"), {"mask": all_masks(2, 6, 5, 7)[mask_name]})
    hold_evidence(poisoned(case), EVERYTHING, observe=observe)


@pytest.mark.parametrize("mask_name", ["packed", "packed causal"])
@every_observer
def test_every_field_of_packed_documents(mask_name: str, observe: Observe) -> None:
    mask = all_masks(2, 6, 7, 7)[mask_name]
    hold_evidence(Case(mask_name, *tensors("peaked", seq_len=7), {"mask": mask}), EVERYTHING, observe=observe)


@pytest.mark.parametrize("option_name", all_options(2, 6, 5, 7))
@every_observer
def test_every_field_with_every_option(option_name: str, observe: Observe) -> None:
    options = {"mask": Causal(), **all_options(2, 6, 5, 7)[option_name]}
    evidence = hold_evidence(Case(option_name, *tensors("randn"), options), EVERYTHING, observe=observe)
    assert (evidence.sink is not None) == ("sinks" in options)


@pytest.mark.parametrize("num_kv_heads", [1, 2, 6])
@every_observer
def test_every_field_of_grouped_heads(num_kv_heads: int, observe: Observe) -> None:
    made = tensors("peaked", num_kv_heads=num_kv_heads, value_head_dim=3)
    hold_evidence(Case("grouped", *made, {"mask": Causal()}), EVERYTHING, observe=observe)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@every_observer
def test_every_field_of_other_dtypes(dtype: torch.dtype, observe: Observe) -> None:
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    evidence = hold_evidence(
        Case("dtype", *tensors("randn", dtype=dtype), {"mask": Causal()}), EVERYTHING, observe=observe
    )
    assert {each.dtype for each in vars(evidence).values() if isinstance(each, torch.Tensor)} == {
        wide,
        torch.int64,
        torch.bool,
    }


@every_observer
def test_empty_rows_beside_a_sink_have_no_numbers(observe: Observe) -> None:
    options = {"mask": Causal() & Lengths([0, 7], padding="left"), "sinks": torch.randn(6)}
    evidence = hold_evidence(Case("empty", *tensors("randn"), options), EVERYTHING, observe=observe)
    assert evidence.sink is not None
    assert evidence.divergence is not None
    assert evidence.sink[0].isnan().all()
    assert evidence.divergence[0].isnan().all()
    assert (evidence.largest_key[0] == -1).all()


@every_observer
def test_more_queries_than_keys_have_no_own_token_before_the_first_key(observe: Observe) -> None:
    evidence = hold_evidence(
        Case("tall", *tensors("randn", seq_len=7, kv_len=5)), EVERYTHING, observe=observe
    )
    assert evidence.self_token[..., :2].isnan().all()
    assert evidence.self_token[..., 2:].isfinite().all()
    assert evidence.previous_token[..., :3].isnan().all()


@every_observer
def test_the_previous_token_is_offset_one(observe: Observe) -> None:
    case = Case("offset", *tensors("randn"), {"mask": Window(left=3, right=1)})
    evidence = hold_evidence(case, EVERYTHING, observe=observe)
    assert evidence.at_offsets is not None
    torch.testing.assert_close(
        evidence.at_offsets[..., 2], evidence.previous_token, rtol=0, atol=0, equal_nan=True
    )


@st.composite
def problems(draw: st.DrawFn) -> tuple[Case, Collect, int]:
    """Draw a call, what to collect of it, and how many scores a block holds."""
    num_kv_heads = draw(st.integers(1, 2))
    num_heads = num_kv_heads * draw(st.sampled_from([1, 3]))
    batch, seq_len, kv_len = draw(st.integers(1, 2)), draw(st.integers(2, 11)), draw(st.integers(3, 13))
    mask_name = draw(st.sampled_from(sorted(all_masks(2, 1, 5, 5))))
    if mask_name.startswith("packed"):
        seq_len = kv_len
    masks, options = (make(batch, num_heads, seq_len, kv_len) for make in (all_masks, all_options))
    made = tensors(
        draw(st.sampled_from(KINDS)),
        batch=batch,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        seq_len=seq_len,
        kv_len=kv_len,
        value_head_dim=draw(st.sampled_from([11, 3])),
        dtype=draw(st.sampled_from([torch.float32, torch.float64, torch.bfloat16])),
        seed=draw(st.integers(0, 99)),
    )
    layout, option_name = draw(st.sampled_from(LAYOUTS)), draw(st.sampled_from(sorted(options)))
    heads = st.integers(0, num_heads - 1)
    two_heads = st.tuples(heads, heads).filter(lambda pair: pair[0] != pair[1])
    collect = Collect(
        weights=draw(st.booleans()),
        map_size=draw(st.none() | st.integers(1, 14)),
        top_k=draw(st.none() | st.integers(1, 14)),
        offsets=draw(st.lists(st.integers(0, 14), unique=True, max_size=3)),
        rows=draw(st.lists(st.integers(0, seq_len - 1), unique=True, max_size=3)),
        received=draw(st.booleans()),
        heads=draw(st.none() | st.lists(heads, unique=True, min_size=1)),
        pairs=draw(st.lists(two_heads, unique_by=frozenset, max_size=2)) if num_heads > 1 else (),
        local_window=draw(st.integers(0, 14)),
    )
    name = f"{mask_name}, {option_name}, {layout}, {collect}"
    case = Case(
        name, *(laid_out(each, layout) for each in made), {"mask": masks[mask_name], **options[option_name]}
    )
    return case, collect, draw(st.sampled_from([1, 2**8, plain.SCORES_PER_BLOCK]))


@settings(max_examples=100, derandomize=True, deadline=None)
@given(problem=problems())
@every_observer
def test_any_choice_of_fields_on_any_call(problem: tuple[Case, Collect, int], observe: Observe) -> None:
    case, collect, block = problem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "SCORES_PER_BLOCK", block)
        hold_evidence(case, collect, observe=observe)


@every_observer
def test_heads_are_reported_in_the_order_asked_for(observe: Observe) -> None:
    case = Case("heads", *tensors("randn"), {"mask": Causal(), "sinks": torch.randn(6)})
    whole = hold_evidence(case, EVERYTHING, observe=observe)
    some = hold_evidence(case, Collect(**{**vars(EVERYTHING), "heads": [4, 0, 1]}), observe=observe)
    assert (whole.heads, some.heads) == (None, (4, 0, 1))
    for name, found in vars(some).items():
        if name not in {"heads", "divergence"}:
            torch.testing.assert_close(
                found, getattr(whole, name)[:, [4, 0, 1]], rtol=0, atol=0, equal_nan=True
            )
    torch.testing.assert_close(some.divergence, whole.divergence, rtol=0, atol=0)


FIRST_KEYS: dict[str, Any] = {"list": [3, -1], "tensor": torch.tensor([3, -1])}


@pytest.mark.parametrize("given_as", FIRST_KEYS)
@every_observer
def test_the_first_token_is_the_key_that_is_named(given_as: str, observe: Observe) -> None:
    case = Case("first", *tensors("randn"), {"mask": Causal() & Lengths([4, 7])})
    hold_evidence(case, Collect(), first_key=FIRST_KEYS[given_as], observe=observe)
    found = observe(case.query, case.key, case.value, first_key=-5).evidence.first_token
    assert (found == 0).all()
    one, each = (
        observe(case.query, case.key, case.value, first_key=key).evidence.first_token for key in (2, [2, 2])
    )
    assert torch.equal(one, each)


@every_observer
def test_the_first_token_is_the_first_that_any_head_sees(observe: Observe) -> None:
    mask = torch.ones(1, 6, 5, 7, dtype=torch.bool)
    mask[:, :3, :, :2] = False
    mask[:, 3:, :, 0] = False
    case = Case("first", *tensors("randn", batch=1), {"mask": mask})
    found = hold_evidence(case, EVERYTHING, observe=observe).first_token
    assert (found[:, :3] == 0).all()  # the first is key 1, which these heads do not see
    assert (found[:, 3:] > 0).all()


@every_observer
def test_only_what_is_asked_for_is_kept(observe: Observe) -> None:
    found = vars(observe(*tensors("randn")).evidence)
    always = {statistic.name for statistic in (*STATISTICS, *OTHER_STATISTICS)} - {"sink"}
    assert {name for name, each in found.items() if each is not None} == always | {"largest_key", "visible"}


@every_observer
def test_more_top_keys_than_keys_are_as_many_as_there_are(observe: Observe) -> None:
    evidence = hold_evidence(Case("top", *tensors("randn")), Collect(top_k=50), observe=observe)
    assert evidence.top_keys is not None
    assert evidence.top_keys.shape == (2, 6, 5, 7)


@every_observer
def test_gates_scale_the_output_and_not_the_evidence(observe: Observe) -> None:
    made = tensors("randn")
    gated = observe(*made, head_gates=torch.zeros(6), collect=EVERYTHING)
    assert (gated.output == 0).all()
    plain_one = vars(observe(*made, collect=EVERYTHING).evidence)
    for name, found in vars(gated.evidence).items():
        torch.testing.assert_close(found, plain_one[name], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("sizes", [{"batch": 0}, {"seq_len": 0}, {"kv_len": 0}])
@every_observer
def test_zero_sizes_have_evidence_of_nothing(sizes: dict[str, int], observe: Observe) -> None:
    collect = Collect(**{**vars(EVERYTHING), "rows": ()})
    evidence = observe(*tensors("randn", **sizes), mask=Causal(), collect=collect).evidence
    for name in ("entropy", "normalised_entropy", "largest_weight", "first_token", "local", "at_offsets"):
        assert getattr(evidence, name).isnan().all()
    assert not evidence.visible.any()
    assert (evidence.largest_key == -1).all()
    assert evidence.weights is not None
    assert evidence.weights.numel() == 0


@every_observer
def test_what_is_nan_is_seen_as_nan_in_its_own_rows_alone(observe: Observe) -> None:
    query, key, value = tensors("randn", batch=1)
    query[0, 4, 2, 0] = torch.nan
    evidence = observe(query, key, value, mask=Dense(torch.ones(5, 7).bool()), collect=EVERYTHING).evidence
    bad = torch.zeros(1, 6, 5, dtype=torch.bool)
    bad[0, 4, 2] = True
    for name in ("entropy", "normalised_entropy", "largest_weight", "mean_distance", "local", "self_token"):
        assert torch.equal(getattr(evidence, name).isnan(), bad), name
    assert evidence.largest_key[bad].tolist() == [-1]
    assert evidence.visible.all()
