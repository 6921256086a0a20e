"""NaN, infinity and the ends of the number range where they are seen: the right values, for every way in.

The rules: an infinite value counts wherever it is seen, since every weight is above 0 however small; a mean
of finite numbers is finite; a logit of +inf, sinks among them, leaves no softmax; a head gated to 0 is 0.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from headwise import ops
from headwise.ops import AttentionResult

from .bits import assert_same_bits, threads
from .ways import Way, by_kernel, differentiable_ways, every_way, over

INF, NAN = torch.inf, torch.nan
FEW, MANY = 2, 29
"""Queries that the kernel streams keys past, and that it packs keys for."""
KV_LEN = 600
"""More than two of the kernel's tiles of 256 keys."""

both_lengths = pytest.mark.parametrize("seq_len", [FEW, MANY])
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])


def problem(
    scores: dict[int, float], values: dict[int, list[float]], *, seq_len: int, kv_len: int = KV_LEN
) -> list[Tensor]:
    """Return query, key and value with these scores and values at some keys, elsewhere 0 and ones."""
    width = len(next(iter(values.values()))) if values else 2
    key, value = torch.zeros(1, 1, kv_len, 1), torch.ones(1, 1, kv_len, width)
    for place, score in scores.items():
        key[0, 0, place] = score
    for place, line in values.items():
        value[0, 0, place] = torch.tensor(line)
    return [torch.ones(1, 1, seq_len, 1), key, value]


def assert_rows(found: AttentionResult, output: list[float], logsumexp: float | None) -> None:
    """Hold every row of one head to these numbers."""
    expected = torch.tensor(output, dtype=found.output.dtype).expand_as(found.output)
    torch.testing.assert_close(found.output, expected, equal_nan=True)
    if logsumexp is not None:
        torch.testing.assert_close(
            found.logsumexp, torch.full_like(found.logsumexp, logsumexp), equal_nan=True
        )


# --- infinite values


@every_way
@both_lengths
@dtypes
@pytest.mark.parametrize(("at", "heaviest"), [(3, 500), (500, 3), (3, 10), (300, 520), (599, 0)])
@pytest.mark.parametrize("lead", [60.0, 200.0], ids=["small weight", "no weight in float32"])
def test_an_infinite_value_counts_in_whatever_tile_it_lies(
    *, way: Way, seq_len: int, dtype: torch.dtype, at: int, heaviest: int, lead: float
) -> None:
    values = {at: [INF, -INF, NAN, INF, 7.0], heaviest: [2.0, 2.0, 2.0, -INF, 2.0]}
    made = problem({heaviest: lead}, values, seq_len=seq_len)
    found = way(*(tensor.to(dtype) for tensor in made))
    assert_rows(found, [INF, -INF, NAN, NAN, 2.0], lead)


@every_way
@both_lengths
@pytest.mark.parametrize("kv_len", [5, KV_LEN])
def test_an_infinite_value_counts_beside_a_sink_a_low_bias_or_a_score_of_minus_infinity(
    way: Way, seq_len: int, kv_len: int
) -> None:
    made = problem({}, {3: [INF, 1.0]}, seq_len=seq_len, kv_len=kv_len)
    assert_rows(way(*made, sinks=torch.tensor([300.0])), [INF, 0.0], 300.0)
    low = torch.zeros(1, kv_len)
    low[0, 3] = torch.finfo(torch.float32).min
    assert_rows(way(*made, bias=low), [INF, 1.0], None)
    made[1][0, 0, 3] = -INF
    assert_rows(way(*made), [INF, 1.0], None)


@every_way
@both_lengths
def test_scores_of_minus_infinity_alone_are_no_softmax_but_leave_all_to_a_sink(
    way: Way, seq_len: int
) -> None:
    made = problem(dict.fromkeys(range(5), -INF), {3: [INF, 1.0]}, seq_len=seq_len, kv_len=5)
    assert_rows(way(*made), [NAN, NAN], -INF)
    assert_rows(way(*made, sinks=torch.tensor([3.0])), [INF, 0.0], 3.0)
    assert_rows(way(*made, sinks=torch.tensor([-INF])), [NAN, NAN], -INF)


# --- finite values near the end of the range


@every_way
@both_lengths
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kv_len", [2, KV_LEN])
def test_a_mean_of_the_largest_numbers_is_finite(
    way: Way, seq_len: int, dtype: torch.dtype, kv_len: int
) -> None:
    largest = torch.finfo(dtype).max
    line = [largest, -largest, 1.0]
    query, key, value = problem({}, dict.fromkeys(range(kv_len), line), seq_len=seq_len, kv_len=kv_len)
    value[:, :, : kv_len // 2, 2] = 3.0
    made = [tensor.to(dtype) for tensor in (query, key, value)]
    assert_rows(way(*made), [largest, -largest, 2.0], None)
    assert_rows(way(*made, head_gates=torch.tensor([0.5])), [largest / 2, -largest / 2, 1.0], None)
    made[2][:, :, ::2] = 0.0
    half = [largest / 2, -largest / 2]
    assert_rows(AttentionResult(*(found[..., :2] for found in way(*made))), half, None)
    halved = way(*made, sinks=torch.tensor([float(torch.tensor(kv_len).log())]))
    assert_rows(AttentionResult(halved.output[..., :2], halved.logsumexp), [part / 2 for part in half], None)


@every_way
@both_lengths
def test_large_values_that_cancel_leave_what_float32_leaves(way: Way, seq_len: int) -> None:
    made = problem({}, {key: [3e38 if key < 300 else -3e38] for key in range(KV_LEN)}, seq_len=seq_len)
    assert (way(*made).output.abs() < 1e-6 * 3e38).all()


# --- scores, biases and sinks of infinity


@every_way
@both_lengths
@dtypes
@pytest.mark.parametrize("at", [3, 300, 599])
def test_a_score_of_infinity_is_no_softmax_and_nan_beside_it_stays_nan(
    way: Way, seq_len: int, dtype: torch.dtype, at: int
) -> None:
    made = [tensor.to(dtype) for tensor in problem({at: INF}, {}, seq_len=seq_len)]
    assert_rows(way(*made), [NAN, NAN], INF)
    assert_rows(way(*made, sinks=torch.tensor([1.0])), [NAN, NAN], INF)
    assert_rows(way(*made, sinks=torch.tensor([NAN])), [NAN, NAN], NAN)
    assert_rows(way(*made, head_gates=torch.tensor([0.0])), [0.0, 0.0], INF)
    hidden = torch.ones(1, KV_LEN, dtype=torch.bool)
    hidden[0, at] = False
    assert_rows(way(*made, mask=hidden), [1.0, 1.0], float(torch.tensor(599.0).log()))
    made[1][0, 0, 100] = NAN
    assert_rows(way(*made), [NAN, NAN], NAN)
    hidden[0, [at, 100]] = torch.tensor([True, False])
    assert_rows(way(*made, mask=hidden), [NAN, NAN], INF)


@every_way
@both_lengths
def test_a_softcap_makes_numbers_of_infinite_scores_and_none_of_nan(way: Way, seq_len: int) -> None:
    made = problem({1: INF, 2: -INF}, {0: [3.0], 1: [1.0], 2: [2.0]}, seq_len=seq_len, kv_len=3)
    weights = torch.tensor([0.0, 5.0, -5.0]).softmax(0)
    mean = float(weights @ torch.tensor([3.0, 1.0, 2.0]))
    assert_rows(way(*made, softcap=5.0), [mean], float(torch.tensor([0.0, 5.0, -5.0]).logsumexp(0)))
    made[1][0, 0, 2] = NAN
    assert_rows(way(*made, softcap=5.0), [NAN], NAN)


@every_way
@both_lengths
@pytest.mark.parametrize("kv_len", [5, KV_LEN])
@pytest.mark.parametrize("options", [{}, {"bias": torch.full((1, 1), -2.0)}], ids=["alone", "with bias"])
def test_a_sink_of_infinity_is_no_softmax_and_one_of_minus_infinity_is_none_at_all(
    way: Way, seq_len: int, kv_len: int, options: dict[str, Any]
) -> None:
    made = problem({}, {1: [INF, 1.0]}, seq_len=seq_len, kv_len=kv_len)
    assert_rows(way(*made, sinks=torch.tensor([INF]), **options), [NAN, NAN], INF)
    assert_rows(way(*made, sinks=torch.tensor([NAN]), **options), [NAN, NAN], NAN)
    without = way(*made, **options)
    torch.testing.assert_close(way(*made, sinks=torch.tensor([-INF]), **options), without)
    made[1][0, 0, 0] = NAN
    assert_rows(way(*made, sinks=torch.tensor([INF]), **options), [NAN, NAN], NAN)
    nothing = torch.zeros(1, kv_len, dtype=torch.bool)
    for sink in (INF, -INF, NAN):
        assert_rows(way(*made, sinks=torch.tensor([sink]), mask=nothing, **options), [0.0, 0.0], -INF)


@every_way
@both_lengths
@pytest.mark.parametrize("name", ["bias", "mask"])
def test_a_bias_of_infinity_is_no_softmax(way: Way, seq_len: int, name: str) -> None:
    made = problem({}, {}, seq_len=seq_len)
    added = torch.zeros(1, KV_LEN)
    added[0, 300] = INF
    assert_rows(way(*made, **{name: added}), [NAN, NAN], INF)
    assert_rows(way(*made, **{name: added.expand(1, 1, 1, KV_LEN), "softcap": 5.0}), [NAN, NAN], INF)
    made[1][0, 0, 100] = NAN
    assert_rows(way(*made, **{name: added}), [NAN, NAN], NAN)
    added[0, 100] = -INF
    assert_rows(way(*made, **{name: added}), [NAN, NAN], INF)
    added[0, 5] = NAN
    assert_rows(way(*made, **{name: added}), [NAN, NAN], NAN)


@over(["torch", "plain torch", "cpu", "observe"])
@both_lengths
def test_scores_beyond_float32_are_infinite_ones(way: Way, seq_len: int) -> None:
    query, key, value = problem({300: 1e30}, {}, seq_len=seq_len)
    assert_rows(way(1e30 * query, key, value), [NAN, NAN], INF)
    assert_rows(way(-1e30 * query, key, value), [1.0, 1.0], float(torch.tensor(599.0).log()))
    assert_rows(way(1e30 * query, key, value, softcap=5.0), [1.0, 1.0], None)


# --- gates


@every_way
@both_lengths
@pytest.mark.parametrize("gate", [0.0, -0.0])
@pytest.mark.parametrize("spoilt", ["query", "key", "value", "infinite value", "nothing"])
def test_a_head_gated_to_0_is_0_whatever_it_holds(way: Way, seq_len: int, gate: float, spoilt: str) -> None:
    query, key, value = problem({}, {}, seq_len=seq_len, kv_len=5)
    for tensor, name, number in (
        (query, "query", NAN), (key, "key", NAN), (value, "value", NAN), (value, "infinite value", INF),
    ):  # fmt: skip
        if name == spoilt:
            tensor[0, 0, 1] = number
    pair = [tensor.repeat(1, 2, 1, 1) for tensor in (query, key, value)]
    found = way(*pair, head_gates=torch.tensor([gate, 1.0])).output
    assert (found[:, 0] == 0).all()
    torch.testing.assert_close(found[:, 1], way(*pair).output[:, 1], equal_nan=True)


@every_way
@both_lengths
@pytest.mark.parametrize("gate", [NAN, INF])
def test_a_gate_that_is_no_number_shows_but_not_in_a_row_that_sees_nothing(
    way: Way, seq_len: int, gate: float
) -> None:
    made = problem({}, {}, seq_len=seq_len, kv_len=5)
    mask = torch.ones(seq_len, 5, dtype=torch.bool)
    mask[0] = False
    found = way(*made, mask=mask, head_gates=torch.tensor([gate])).output
    assert (found[:, :, 0] == 0).all()
    torch.testing.assert_close(found[:, :, 1:], torch.full_like(found[:, :, 1:], gate), equal_nan=True)


@differentiable_ways
def test_a_gate_of_0_keeps_its_derivative(way: Way) -> None:
    query, key, value = (torch.randn(1, 2, 3, 4) for _ in range(3))
    value[:, 0, 1, 2] = NAN  # so that the first head's other columns are what is left
    gates = torch.zeros(2, requires_grad=True)
    way(query, key, value, head_gates=gates).output.sum().backward()
    finite = way(query, key, value).output.nan_to_num(0.0)
    torch.testing.assert_close(gates.grad, finite.sum((0, 2, 3)))


# --- the kernel's promises hold for all of it


def test_rows_that_are_summed_again_keep_their_bits() -> None:
    """They are found in one of many rows, one of few, on any number of threads, with hidden NaN about."""
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(2, 4, length, 16, generator=generator) for length in (MANY, KV_LEN))
    value = torch.randn(2, 4, KV_LEN, 24, generator=generator)
    value[:, :, 100:110, 3], value[0, 1, 400, 5], value[1, :, 7, 9] = 3e38, INF, -INF
    key[1, 2, 50, :] = INF
    mask = torch.rand(MANY, KV_LEN, generator=generator) < 0.9
    mask[:, 590:] = False
    sinks = torch.randn(4, generator=generator)
    whole = by_kernel(query, key, value, mask=mask, sinks=sinks)
    assert whole.output.isinf().any()
    assert (whole.output.abs() > 1e36).any()
    for count in (1, 3):
        with threads(count):
            assert_same_bits(by_kernel(query, key, value, mask=mask, sinks=sinks), whole, f"{count} threads")
    key[:, :, 590:], value[:, :, 590:] = NAN, INF
    for start in range(0, MANY, 5):
        rows = slice(start, start + 5)
        part = by_kernel(query[1:, :, rows], key[1:], value[1:], mask=mask[rows], sinks=sinks)
        expected = AttentionResult(whole.output[1:, :, rows], whole.logsumexp[1:, :, rows])
        assert_same_bits(part, expected, f"rows from {start}")


# --- merging


def test_an_infinite_part_counts_however_small_its_share_is() -> None:
    for order in (1, -1):
        outputs = [torch.full((1, 1, 1, 1), INF), torch.ones(1, 1, 1, 1)][::order]
        logsumexps = [torch.full((1, 1, 1), -300.0), torch.zeros(1, 1, 1)][::order]
        assert_rows(ops.merge(outputs, logsumexps), [INF], 0.0)


def test_parts_of_the_largest_numbers_merge_into_a_finite_one() -> None:
    largest = torch.finfo(torch.float32).max
    outputs = [torch.full((1, 1, 1, 1), largest)] * 3
    merged = ops.merge(outputs, [torch.full((1, 1, 1), each) for each in (0.1, 0.2, 0.3)])
    assert_rows(merged, [largest], None)


@pytest.mark.parametrize(("other", "logsumexp"), [(0.0, INF), (-INF, INF), (INF, INF), (NAN, NAN)])
def test_a_part_without_softmax_leaves_none(other: float, logsumexp: float) -> None:
    outputs = [torch.full((1, 1, 1, 1), NAN), torch.ones(1, 1, 1, 1)]
    merged = ops.merge(outputs, [torch.full((1, 1, 1), each) for each in (INF, other)])
    assert_rows(merged, [NAN], logsumexp)
