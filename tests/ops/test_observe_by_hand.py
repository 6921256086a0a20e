"""Evidence of weights that a person can work out, and how ties and edges come out."""

from __future__ import annotations

import math

import torch

from headwise import ops
from headwise.evidence import Collect
from headwise.masks import Causal

from ..evidence_oracle import Observe
from .observe_ways import every_observer

LOOKS_BACK, LOOKS_AT_ITSELF = torch.eye(3).roll(-1, 0), torch.eye(3)


def two_heads(observe: Observe, **collect: object) -> ops.Observation:
    """Two heads over three tokens: one looks back by one, the other at itself."""
    query = 20 * torch.eye(3).expand(1, 2, 3, 3)
    key = torch.stack([LOOKS_BACK, LOOKS_AT_ITSELF])[None]
    return observe(query, key, key, mask=Causal(), scale=5.0, collect=Collect(**collect))


@every_observer
def test_one_key_takes_all(observe: Observe) -> None:
    evidence = two_heads(observe, top_k=1, local_window=0).evidence
    back, own = evidence.previous_token[0], evidence.self_token[0]
    torch.testing.assert_close(back, torch.tensor([[torch.nan, 1, 1], [torch.nan, 0, 0]]), equal_nan=True)
    torch.testing.assert_close(own, torch.tensor([[1.0, 0, 0], [1, 1, 1]]))
    torch.testing.assert_close(evidence.mean_distance[0], torch.tensor([[0.0, 1, 1], [0, 0, 0]]))
    torch.testing.assert_close(evidence.first_token[0], torch.tensor([[1.0, 1, 0], [1, 0, 0]]))
    torch.testing.assert_close(evidence.entropy, torch.zeros(1, 2, 3))
    torch.testing.assert_close(evidence.normalised_entropy, torch.zeros(1, 2, 3))
    torch.testing.assert_close(evidence.largest_weight, torch.ones(1, 2, 3))
    torch.testing.assert_close(evidence.local, evidence.self_token)
    assert evidence.largest_key[0].tolist() == [[0, 0, 1], [0, 1, 2]]
    assert evidence.top_keys is not None
    assert evidence.top_keys[0, :, :, 0].tolist() == [[0, 0, 1], [0, 1, 2]]


@every_observer
def test_what_is_kept_on_request(observe: Observe) -> None:
    evidence = two_heads(
        observe, offsets=[1, 2], rows=[-1], received=True, pairs=[(0, 1)], map_size=1
    ).evidence
    nan = torch.nan
    offsets = torch.tensor([[[nan, nan], [1, nan], [1, 0]], [[nan, nan], [0, nan], [0, 0]]])
    torch.testing.assert_close(evidence.at_offsets[0], offsets, equal_nan=True)
    torch.testing.assert_close(evidence.row_weights[0], torch.tensor([[[0.0, 1, 0]], [[0.0, 0, 1]]]))
    torch.testing.assert_close(evidence.received[0], torch.tensor([[2.0, 1, 0], [1, 1, 1]]))
    torch.testing.assert_close(evidence.map, torch.ones(1, 2, 1, 1))
    # The same in the first row; after that the two heads share no key.
    torch.testing.assert_close(evidence.divergence[0, 0], torch.tensor([0.0, math.log(2), math.log(2)]))


@every_observer
def test_even_weights_have_the_entropy_of_their_number(observe: Observe) -> None:
    zeros = torch.zeros(1, 1, 5, 3)
    found = observe(zeros, zeros, zeros, mask=Causal()).evidence
    torch.testing.assert_close(found.entropy[0, 0], torch.arange(1.0, 6.0).log())
    torch.testing.assert_close(found.normalised_entropy[0, 0], torch.tensor([0.0, 1, 1, 1, 1]))


@every_observer
def test_the_first_of_equal_keys_is_the_largest(observe: Observe) -> None:
    zeros = torch.zeros(1, 1, 5, 3)
    mask = torch.tensor([[1, 1, 1], [0, 1, 1], [0, 0, 1], [0, 0, 0], [1, 0, 1]]).bool()
    found = observe(zeros, zeros[:, :, :3], zeros[:, :, :3], mask=mask).evidence
    assert found.largest_key[0, 0].tolist() == [0, 1, 2, -1, 0]


@every_observer
def test_a_sink_that_takes_all_leaves_the_first_visible_key_with_nothing(observe: Observe) -> None:
    zeros, mask = torch.zeros(1, 1, 2, 3), torch.tensor([[False, True], [False, False]])
    found = observe(zeros, zeros, zeros, mask=mask, sinks=torch.tensor([1e4])).evidence
    assert found.largest_key[0, 0].tolist() == [1, -1]
    torch.testing.assert_close(found.largest_weight[0, 0], torch.tensor([0.0, torch.nan]), equal_nan=True)
    torch.testing.assert_close(found.sink, torch.tensor([[[1.0, torch.nan]]]), equal_nan=True)


@every_observer
def test_what_sinks_took_is_one_more_key_to_a_divergence(observe: Observe) -> None:
    zeros = torch.zeros(1, 2, 1, 3)
    sinks = torch.tensor([-1e4, 1e4])  # all to the key, all to the sink: nothing in common
    found = observe(zeros, zeros, zeros, sinks=sinks, collect=Collect(pairs=[(0, 1)])).evidence
    torch.testing.assert_close(found.divergence, torch.full((1, 1, 1), math.log(2)))


@every_observer
def test_equal_heads_do_not_diverge(observe: Observe) -> None:
    query, key = torch.randn(1, 1, 7, 5).expand(1, 2, 7, 5), torch.randn(1, 1, 7, 5)
    found = observe(query, key, key, mask=Causal(), collect=Collect(pairs=[(1, 0)])).evidence
    assert found.divergence is not None
    assert 0 <= found.divergence.min() <= found.divergence.max() < 1e-6  # the rounding of two products
