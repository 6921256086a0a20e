"""What a hostile reader found in the kernel, each case with its right value."""

import pytest
import torch

from headwise.ops import attention, attention_with_logsumexp

QUERY, KEY, VALUE = torch.ones(1, 1, 1, 4), torch.zeros(1, 1, 3, 4), torch.arange(12.0).reshape(1, 1, 3, 4)


@pytest.mark.parametrize("low", [-1e9, torch.finfo(torch.float32).min, -1e4])
@pytest.mark.parametrize("name", ["bias", "mask"])
def test_a_sink_keeps_its_digits_beside_a_large_negative_bias(low: float, name: str) -> None:
    options = {name: torch.full((1, 3), low), "sinks": torch.tensor([0.1234567])}
    found = attention_with_logsumexp(QUERY, KEY, VALUE, impl="cpu", **options)
    assert found.logsumexp.item() == pytest.approx(0.1234567, abs=1e-7)


def test_scores_of_minus_infinity_leave_everything_to_the_sink() -> None:
    key = torch.full_like(KEY, -torch.inf)
    found = attention_with_logsumexp(QUERY, key, VALUE, sinks=torch.tensor([3.0]), impl="cpu")
    assert (found.output == 0).all()
    assert found.logsumexp.item() == 3.0


@pytest.mark.parametrize("gate", [0.0, -0.0])
def test_a_removed_head_is_plus_zero_with_and_without_logsumexp(gate: float) -> None:
    options = {"head_gates": torch.tensor([gate]), "impl": "cpu"}
    for output in (
        attention(QUERY, KEY, -VALUE, **options),
        attention_with_logsumexp(QUERY, KEY, -VALUE, **options).output,
    ):
        assert (output.view(torch.int32) == 0).all()


@pytest.mark.parametrize("seq_len", [3, 200])
def test_whoever_flushes_denormals_gets_the_same_bits(seq_len: int) -> None:
    query, key = torch.randn(1, 4, seq_len, 64), torch.randn(1, 4, 600, 64)
    value = torch.randn(1, 4, 600, 64) * 1e-39
    usual = attention(query, key, value, impl="cpu")
    assert torch.set_flush_denormal(True)
    try:
        found = attention(query, key, value, impl="cpu")
        still_set = torch.tensor([1e-39]) * 1.0
    finally:
        torch.set_flush_denormal(False)
    assert torch.equal(found.view(torch.int32), usual.view(torch.int32))
    assert still_set.item() == 0.0  # the caller's setting is the caller's again
