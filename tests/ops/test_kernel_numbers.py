"""The CPU kernel on numbers that are none or beyond float32, and on biases that have to be added up."""

from typing import Any

import pytest
import torch

from headwise import ops

from ..attention_cases import tensors
from .bits import assert_same_bits
from .exact import assert_near, in_float64
from .ways import by_kernel

# --- numbers that are none. Two keys: the first as given, the second 0 with the value 2.


def two_keys(key: float, value: float = 1.0, **options: Any) -> tuple[float, float]:
    """Return output and logsumexp of a query of 1 that sees both keys."""
    keys, values = (torch.tensor(each).reshape(1, 1, 2, 1) for each in ([key, 0.0], [value, 2.0]))
    found = by_kernel(torch.ones(1, 1, 1, 1), keys, values, **options)
    return found.output.item(), found.logsumexp.item()


NAN, INF = torch.nan, torch.inf
FIRST_HIDDEN = torch.tensor([[False, True]])


@pytest.mark.parametrize(
    ("key", "value", "output", "logsumexp"),
    [
        (-INF, 1.0, 2.0, 0.0),  # a score of -inf is a weight of 0
        (-INF, NAN, NAN, 0.0),  # but a value that is seen
        (NAN, 1.0, NAN, NAN),
        (INF, 1.0, NAN, None),
        (-200.0, NAN, NAN, 0.0),  # too small a weight for float32 is none for NaN
        (-200.0, INF, INF, 0.0),
        (-200.0, -INF, -INF, 0.0),
        (1e30, 1.0, 1.0, 1e30),
        (-1e30, 1.0, 2.0, 0.0),
    ],
)
def test_what_is_not_finite_counts_where_it_is_seen(
    key: float, value: float, output: float, logsumexp: float | None
) -> None:
    found = two_keys(key, value)
    assert found[0] == pytest.approx(output, nan_ok=True)
    if logsumexp is not None:
        assert found[1] == pytest.approx(logsumexp, nan_ok=True)
    assert two_keys(key, value, mask=FIRST_HIDDEN) == (2.0, 0.0)
    assert two_keys(key, value, bias=torch.tensor([[-INF, 0.0]])) == (2.0, 0.0)


def test_a_row_of_nothing_but_scores_of_minus_infinity_is_nan() -> None:
    keys = torch.full((1, 1, 2, 1), -INF)
    found = by_kernel(torch.ones(1, 1, 1, 1), keys, torch.ones(1, 1, 2, 1))
    assert found.output.isnan().all()
    assert (found.logsumexp == -INF).all()


@pytest.mark.parametrize("seq_len", [2, 29])
def test_a_nan_query_spoils_its_own_row_only(seq_len: int) -> None:
    made = tensors("randn", seq_len=seq_len, kv_len=300)
    clean = by_kernel(*made)
    made[0][1, 4, 1, 3] = NAN
    found = by_kernel(*made)
    assert found.output[1, 4, 1].isnan().all()
    assert found.logsumexp[1, 4, 1].isnan()
    for one, other in zip(found, clean, strict=True):
        one[1, 4, 1] = other[1, 4, 1]
    assert_same_bits(found, clean, "the other rows")


# --- several biases, and those in float64


def test_several_biases_count_to_the_last_digit_of_their_sum() -> None:
    made = tensors("randn")
    parts = [1e6 + torch.randn(5, 7), torch.full((1, 7), -1e6), torch.randn(6, 5, 1)]
    mask = torch.where(torch.rand(5, 7) < 0.3, -INF, parts[0])
    for dtype in (torch.float32, torch.float64):
        options = {"mask": mask.to(dtype), "bias": parts[1].to(dtype)}
        found, exact = by_kernel(*made, **options), in_float64(*made, **options)
        assert_near(found.output, exact.output, "output")
        assert_near(found.logsumexp, exact.logsumexp, "logsumexp")
    alone, summed = parts[2].double(), {"mask": parts[2] / 2, "bias": parts[2] / 2}
    torch.testing.assert_close(by_kernel(*made, **summed), by_kernel(*made, bias=alone))


@pytest.mark.parametrize("largest", [-1e300, -1e30, 1e30])
def test_a_float64_bias_of_any_size_keeps_every_weight(largest: float) -> None:
    made = tensors("randn")
    bias = torch.full((5, 7), largest, dtype=torch.float64)
    plain, found = by_kernel(*made), by_kernel(*made, bias=bias)
    torch.testing.assert_close(found.output, plain.output)
    torch.testing.assert_close(found.logsumexp, plain.logsumexp + largest)


def test_a_bias_below_all_of_float32_hides_nothing() -> None:
    key, value = torch.zeros(1, 1, 2, 1), torch.tensor([NAN, 2.0]).reshape(1, 1, 2, 1)
    for low in (-1e300, -INF):
        bias = torch.tensor([[low, 0.0]], dtype=torch.float64)
        found = by_kernel(torch.ones(1, 1, 1, 1), key, value, bias=bias).output
        assert found.isnan().all() == (low != -INF)


def test_rows_that_several_biases_hide_together_are_empty() -> None:
    made = tensors("randn")
    mask, bias = torch.randn(5, 7), torch.randn(5, 7)
    mask[2, :4] = bias[2, 4:] = -INF
    mask[3], bias[4] = -INF, -INF
    found = by_kernel(*made, mask=mask, bias=bias)
    assert (found.output[:, :, 2:] == 0).all()
    assert (found.logsumexp[:, :, 2:] == -INF).all()
    assert found.output[:, :, :2].isfinite().all()
    assert (found.output[:, :, :2] != 0).all()


# --- softcaps that float32 does not hold


@pytest.mark.parametrize("impl", ["cpu", "torch"])
def test_a_softcap_beyond_float32_is_neither_0_nor_infinite(impl: Any) -> None:
    made = tensors("randn")
    mean = made[2].mean(2, keepdim=True).repeat_interleave(2, dim=1).expand(2, 6, 5, 11)
    torch.testing.assert_close(ops.attention(*made, softcap=1e-46, impl=impl), mean)
    made[0][:, :, 0] = 0  # a score of 0 in the quotient 0 / 0
    torch.testing.assert_close(ops.attention(*made, softcap=1e-46, impl=impl), mean)
    torch.testing.assert_close(
        ops.attention(*made, softcap=1e39, impl=impl), ops.attention(*made, impl=impl), rtol=1e-5, atol=1e-5
    )
