"""The benchmark trains what it says it trains, and a real difference would be seen."""

import pytest
import torch
from benchmarks.loss_curves import TorchAttention, comparison

import headwise as hw
from benchmarks import loss_curves


@pytest.mark.parametrize("num_kv_heads", [1, 2, 6])
def test_the_other_way_is_the_same_layer_by_torch(num_kv_heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layer = hw.MultiHeadAttention(24, 6, num_kv_heads=num_kv_heads, rope=hw.Rope())
    given = torch.randn(2, 13, 24)
    expected = layer(given, mask=hw.Causal())
    layer.__class__ = TorchAttention
    torch.testing.assert_close(layer(given, mask=hw.Causal()), expected, rtol=1e-5, atol=1e-5)

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("headwise computed torch's way")

    monkeypatch.setattr("headwise.nn.multi_head_attention.attention", refused)
    layer(given, mask=hw.Causal())


def test_a_difference_is_held_to_the_spread_over_the_seeds_at_its_step() -> None:
    theirs = {0: [3.0, 2.0], 1: [3.1, 2.3], 2: [3.2, 2.6]}  # standard deviations of 0.1 and 0.3
    ours = {0: [3.0, 2.0], 1: [3.15, 2.3], 2: [3.2, 2.45]}
    found = comparison(ours, theirs)
    assert found["largest_difference_millinats"] == pytest.approx(150.0)
    assert found["least_spread_millinats"] == pytest.approx(100.0)
    assert found["largest_difference_over_spread"] == pytest.approx(0.5)


def test_each_number_of_a_curve_is_a_mean_of_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    def trained(*_: object, steps: int, seed: int) -> list[float]:
        return [float(step + seed) for step in range(steps)]

    monkeypatch.setattr(loss_curves, "train", trained)
    found = loss_curves.measure()
    assert found["headwise_seed0_step25"] == found["torch_seed0_step25"] == 12.0
    assert found["torch_seed1_step300"] == 288.0
    assert found["largest_difference_over_spread"] == 0.0
    assert len(found) == 2 * 3 * 12 + 3
