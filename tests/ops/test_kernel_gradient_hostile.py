"""Gradients where numbers are none: what is hidden reaches nothing, what is seen all that it should."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.kernels.geometry import STRETCH
from headwise.masks import Causal, Window
from headwise.ops.results import Gradients

from ..attention_cases import Case, tensors
from .gradient_formula import Upstream
from .gradient_ways import NAMES, assert_same_gradients, by_formula, by_kernel, hold, upstream_of

NAN, INF = torch.nan, torch.inf
SEQ_LEN, KV_LEN = 41, STRETCH + 22
PLACES = ("query", "key", "value", "output", "logsumexp", "bias", "sinks")
ROW, KEY = 20, 77


def dense_mask() -> Tensor:
    """Return a mask under which rows 7 and 30 see nothing, and nobody sees the keys 30 to 34 and 140."""
    found = torch.rand(1, 3, SEQ_LEN, KV_LEN) < 0.7
    found[..., 30:35], found[..., 140] = False, False
    found[:, :, 7], found[:, :, 30] = False, False
    return found


MASKS: dict[str, Any] = {"none": None, "causal": Causal(), "window": Window(left=40, right=3), "dense": None}
OPTIONS: dict[str, dict[str, Any]] = {"plain": {}, "softcap": {"softcap": 1.5}, "sinks": {"sinks": None}}


def problem(mask: str, option: str, kind: str = "randn") -> tuple[Case, Upstream]:
    sizes = {"batch": 1, "num_heads": 3, "num_kv_heads": 1, "seq_len": SEQ_LEN, "kv_len": KV_LEN}
    made = tensors(kind, head_dim=5, **sizes)
    options = {"mask": dense_mask() if mask == "dense" else MASKS[mask], **OPTIONS[option]}
    options["bias"] = torch.randn(1, 3, 1, KV_LEN)
    if option == "sinks":
        options["sinks"] = torch.randn(3)
    case = Case(f"{mask}, {option}, {kind}", *made, options)
    return case, upstream_of(case)


def spoiled(case: Case, upstream: Upstream, place: str, number: float) -> None:
    """Put a number into one place that is seen."""
    assert upstream.logsumexp is not None
    match place:
        case "query":
            case.query[0, 1, ROW, 2] = number
        case "key":
            case.key[0, 0, KEY, 2] = number
        case "value":
            case.value[0, 0, KEY, 2] = number
        case "output":
            upstream.output[0, 1, ROW, 2] = number
        case "logsumexp":
            upstream.logsumexp[0, 1, ROW] = number
        case "bias":
            case.options["bias"][0, 1, 0, KEY] = number
        case "sinks":
            case.options["sinks"][1] = number


def assert_not_finite_alike(case: Case, upstream: Upstream, name: str) -> Gradients:
    found, exact = by_kernel(case, upstream), by_formula(case, upstream, dtype=torch.float64)
    for field, one, other in zip(NAMES, found, exact, strict=True):
        if one is not None and other is not None:
            assert torch.equal(one.isnan(), other.isnan()), f"{field}, {name}: NaN elsewhere"
            assert torch.equal(one.isinf(), other.isinf()), f"{field}, {name}: infinite elsewhere"
    return found


@pytest.mark.parametrize("number", [NAN, INF, -INF])
@pytest.mark.parametrize("place", PLACES)
def test_what_is_seen_reaches_what_the_formula_says(place: str, number: float) -> None:
    for mask in MASKS:
        for option in OPTIONS:
            for kind in ("randn", "peaked"):
                case, upstream = problem(mask, option, kind)
                if place != "sinks" or option == "sinks":
                    spoiled(case, upstream, place, number)
                    assert_not_finite_alike(case, upstream, f"{number} in {place}, {case.name}")


@pytest.mark.parametrize("number", [NAN, INF, -INF])
@pytest.mark.parametrize("place", [place for place in PLACES if place != "bias"])
def test_a_bias_that_is_one_number_a_row_is_reached_too(place: str, number: float) -> None:
    """Its gradient is summed over no keys, for what it is the sum of cancels; NaN and infinity do not."""
    for mask in MASKS:
        for option in OPTIONS:
            case, upstream = problem(mask, option)
            case.options["bias"] = torch.randn(1, 3, SEQ_LEN, 1)
            if place != "sinks" or option == "sinks":
                spoiled(case, upstream, place, number)
                found, exact = by_kernel(case, upstream), by_formula(case, upstream, dtype=torch.float64)
                assert found.bias is not None
                assert exact.bias is not None
                assert torch.equal(found.bias.isfinite(), exact.bias.isfinite()), case.name


def test_a_nan_reaches_rows_and_keys_that_see_each_other_only() -> None:
    case, upstream = problem("causal", "plain")
    clean = by_kernel(case, upstream)
    spoiled(case, upstream, "query", NAN)
    found = by_kernel(case, upstream)
    last_seen = KV_LEN - SEQ_LEN + ROW
    for one in (found.key, found.value):
        assert one is not None
        assert one[:, :, : last_seen + 1].isnan().all()
        assert one[:, :, last_seen + 1 :].isfinite().all()
    assert found.query is not None
    assert clean.query is not None
    others = torch.arange(SEQ_LEN) != ROW
    assert found.query[0, 1, ROW].isnan().all()
    assert torch.equal(found.query[:, :, others], clean.query[:, :, others])


# --- what nobody sees


def hidden_places(case: Case, upstream: Upstream) -> dict[str, Tensor]:
    assert upstream.logsumexp is not None
    return {
        "query": case.query[:, :, 7],
        "key": case.key[:, :, 31],
        "value": case.value[:, :, 33],
        "the last key": case.key[:, :, 140],
        "the last value": case.value[:, :, 140],
        "output": upstream.output[:, :, 30],
        "logsumexp": upstream.logsumexp[:, :, 7],
        "bias": case.options["bias"][..., 32],
    }


@pytest.mark.parametrize("number", [NAN, INF, -INF, -3e38])
@pytest.mark.parametrize("option", OPTIONS)
def test_what_nobody_sees_changes_no_bit(option: str, number: float) -> None:
    case, upstream = problem("dense", option)
    clean = by_kernel(case, upstream)
    hold(case, upstream)
    for name, place in hidden_places(case, upstream).items():
        before = place.clone()
        place.fill_(number)
        assert_same_gradients(by_kernel(case, upstream), clean, f"{number} in {name}, {option}")
        place.copy_(before)
    for place in hidden_places(case, upstream).values():
        place.fill_(number)
    assert_same_gradients(by_kernel(case, upstream), clean, f"{number} everywhere, {option}")


def test_gradients_of_empty_rows_and_unseen_keys_are_plus_zero() -> None:
    case, upstream = problem("dense", "sinks")
    found = by_kernel(case, upstream)
    for gradient, rows in ((found.query, [7, 30]), (found.key, [30, 34, 140]), (found.value, [30, 34, 140])):
        assert gradient is not None
        assert (gradient[:, :, rows].contiguous().view(torch.int32) == 0).all()


@pytest.mark.parametrize("number", [NAN, INF])
def test_rows_that_do_not_see_a_key_do_not_notice_it(number: float) -> None:
    for mask in ("causal", "window", "dense"):
        case, upstream = problem(mask, "softcap")
        hidden = ~case.visible()[..., KEY]
        clean = by_kernel(case, upstream, wanted=["query"]).query
        for place in ("key", "value"):
            other = replace(case, key=case.key.clone(), value=case.value.clone())
            spoiled(other, upstream, place, number)
            found = by_kernel(other, upstream, wanted=["query"]).query
            assert found is not None
            assert clean is not None
            assert torch.equal(found[hidden], clean[hidden]), f"{number} in {place}, {mask}"


# --- numbers near the end of float32


def far_apart(score: float, value: float) -> Case:
    """Return a query of 1 that sees a key with this score and value, and one with the score 0."""
    key, values = (torch.tensor([one, 0.5]).reshape(1, 1, 2, 1) for one in (score, value))
    key[0, 0, 1] = 0.0
    return Case(f"{score}, {value}", torch.ones(1, 1, 1, 1), key, values)


@pytest.mark.parametrize("value", [NAN, INF])
def test_a_value_counts_however_small_its_weight(value: float) -> None:
    case = far_apart(-200.0, value)
    found = by_kernel(case, upstream_of(case, logsumexp=False))
    assert found.key is not None
    assert not found.key.isfinite().any()


@pytest.mark.parametrize("score", [-200.0, 200.0, 1e30, -1e30, 3e38])
def test_one_key_takes_all(score: float) -> None:
    case = far_apart(score, 1.0)
    found = by_kernel(case, upstream_of(case))
    exact = by_formula(case, upstream_of(case), dtype=torch.float64)
    for one, other in zip(found[:3], exact[:3], strict=True):
        assert one is not None
        torch.testing.assert_close(one.double(), other, rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("size", [1e4, 1e18])
def test_scores_near_the_end_of_float32(size: float) -> None:
    case, upstream = problem("causal", "plain")
    hold(replace(case, query=size * case.query, key=size * case.key), upstream)


@pytest.mark.parametrize("size", [1e-38, 1e30, 1e37])
def test_values_and_upstream_gradients_near_the_ends_of_float32(size: float) -> None:
    case, upstream = problem("causal", "sinks")
    hold(replace(case, value=size * case.value), upstream._replace(logsumexp=None))
    hold(case, upstream._replace(output=size * upstream.output, logsumexp=None))


def test_whoever_flushes_denormals_gets_the_same_bits() -> None:
    case, upstream = problem("causal", "plain")
    case = replace(case, value=1e-39 * case.value)
    upstream = upstream._replace(logsumexp=None)
    usual = by_kernel(case, upstream, wanted=NAMES[:3])
    assert torch.set_flush_denormal(True)
    try:
        found = by_kernel(case, upstream, wanted=NAMES[:3])
    finally:
        torch.set_flush_denormal(False)
    assert_same_gradients(found, usual, "denormals")
