"""An attention that is right, but not as was declared: what differs is told, and what it really does."""

from typing import Any

import pytest
import torch
from torch import Tensor

import headwise as hw
from headwise.verbs.check import CheckResult, Departure, check

SIZES = {"num_heads": 4, "head_dim": 8}


def plain(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return torch.softmax(query @ key.mT * query.shape[-1] ** -0.5, dim=-1) @ value


def windowed(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    shape = query.shape[-2], key.shape[-2]
    last = torch.ones(shape, dtype=torch.bool).tril(shape[1] - shape[0])
    scores = query @ key.mT * query.shape[-1] ** -0.5
    scores = scores.masked_fill(~(last & last.triu(shape[1] - shape[0] - 3)), -torch.inf)
    return torch.softmax(scores, dim=-1) @ value


def flagged(query: Tensor, key: Tensor, value: Tensor, *, is_causal: bool = False) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=is_causal)


def ignoring(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    scores = query @ key.mT * query.shape[-1] ** -0.5
    return torch.softmax(scores.masked_fill(mask.bool(), -1e30), dim=-1) @ value


def found(target: Any, **declared: Any) -> CheckResult:
    return check(target, **SIZES, **declared)


@pytest.mark.parametrize(
    ("target", "declared", "departures"),
    [
        (plain, {"scale": 0.5}, [Departure("scale", "0.5", "head_dim ** -0.5")]),
        (plain, {"causal": True}, [Departure("causal", "True", "False")]),
        (plain, {"softcap": 30.0}, [Departure("softcap", "30", "none")]),
        (windowed, {"window": 5}, [Departure("window", "5", "4")]),
        (windowed, {"causal": False}, [Departure("causal", "False", "True")]),
        (flagged, {"causal": "lower_right"}, [Departure("causal alignment", "lower_right", "upper_left")]),
        (ignoring, {"mask_means": "attend"}, [Departure("mask means", "attend", "ignore")]),
    ],
)
def test_what_differs_from_what_was_declared_is_told(
    target: Any, declared: dict[str, Any], departures: list[Departure]
) -> None:
    result = found(target, **declared)
    assert not result.is_right
    assert list(result.departures) == departures


def test_rotary_positions_are_told_by_pairing_and_base() -> None:
    layer = hw.MultiHeadAttention(d_model=24, num_heads=4, rope=hw.Rope(pairing="interleaved"))
    (departure,) = check(layer, rope=hw.Rope(base=500_000.0)).departures
    assert departure == Departure("rope", "half_split, base 500000", "interleaved, base 10000")


def test_the_conventions_shown_are_those_that_it_has() -> None:
    result = found(plain, scale=0.5, causal=True)
    assert [departure.name for departure in result.departures] == ["causal", "scale"]
    conventions = {convention.name: convention.value for convention in result.conventions}
    assert (conventions["scale"], conventions["causal"]) == ("head_dim ** -0.5", "no")


def test_nothing_departs_where_it_is_as_declared() -> None:
    result = found(windowed, window=4, causal="lower_right")
    assert result.is_right
    assert result.departures == ()


def test_one_that_is_wrong_whatever_is_declared_departs_from_nothing() -> None:
    result = found(lambda query, key, value: plain(query * 8**0.5, key, value), causal=False)
    assert result.fault_names == ("scale-missing",)
    assert result.departures == ()
