"""Every statistic that `observe` reports is held to its definition on the reference's weights."""

from typing import Any

import numpy as np
import pytest
import torch

from headwise import ops, reference
from headwise.evidence import STATISTICS, Collect, Evidence
from headwise.masks import Causal, Lengths
from headwise.ops import plain

from ..attention_cases import Case, all_masks, all_options, tensors

EVERYTHING = Collect(weights=True, map_size=3, top_k=4)


def expected_evidence(case: Case) -> dict[str, np.ndarray]:
    """Return the statistics by their definitions, from the reference's weights and what each row sees."""
    options = {name: _numpy(option) for name, option in case.options.items()}
    arrays = [_numpy(tensor) for tensor in (case.query, case.key, case.value)]
    found = reference.attention(*arrays, **options)
    visible = case.visible().numpy()
    batch, num_heads, seq_len, kv_len = visible.shape
    wanted = {statistic.name: np.full((batch, num_heads, seq_len), np.nan) for statistic in STATISTICS}
    for b, h, i in np.ndindex(batch, num_heads, seq_len):
        seen = np.flatnonzero(visible[b, h, i])
        if seen.size == 0:
            continue
        weights, own = found.weights[b, h, i], i + kv_len - seq_len
        first = np.flatnonzero(visible[b].any(axis=(0, 1)))[0]
        positive = weights[weights > 0]
        wanted["entropy"][b, h, i] = -(positive * np.log(positive)).sum()
        wanted["first_token"][b, h, i] = weights[first]
        if own - 1 in seen:
            wanted["previous_token"][b, h, i] = weights[own - 1]
        if own >= 0:
            wanted["self_token"][b, h, i] = weights[own]
        wanted["mean_distance"][b, h, i] = sum(weights[j] * abs(own - j) for j in seen)
    wanted["weights"] = found.weights
    wanted["visible"] = visible.any(-1)
    if "sinks" in options:
        wanted["sink"] = np.where(visible.any(-1), 1 - found.weights.sum(-1), np.nan)
    return wanted


def _numpy(option: Any) -> Any:
    return (
        option.double().numpy() if isinstance(option, torch.Tensor) and option.is_floating_point() else option
    )


def assert_evidence_is_exact(case: Case) -> Evidence[torch.Tensor]:
    """Hold every field to its definition, and return the evidence."""
    evidence = ops.observe(case.query, case.key, case.value, **case.options, collect=EVERYTHING).evidence
    wanted = expected_evidence(case)
    for name, expected in wanted.items():
        found = getattr(evidence, name)
        assert tuple(found.shape) == expected.shape, f"{name} of {case.name}"
        np.testing.assert_allclose(
            found.double().numpy(), expected, rtol=1e-4, atol=3e-5, err_msg=f"{name} of {case.name}"
        )
    _assert_top_keys(evidence, wanted["weights"], case.visible().numpy())
    _assert_map(evidence, wanted["weights"], wanted["visible"])
    return evidence


def _assert_top_keys(evidence: Evidence[torch.Tensor], weights: np.ndarray, visible: np.ndarray) -> None:
    assert evidence.top_weights is not None
    assert evidence.top_keys is not None
    for index in np.ndindex(weights.shape[:3]):
        count = min(4, int(visible[index].sum()))
        keys, found = evidence.top_keys[index].numpy(), evidence.top_weights[index].numpy()
        np.testing.assert_allclose(found[:count], np.sort(weights[index])[::-1][:count], rtol=1e-4, atol=3e-5)
        np.testing.assert_allclose(weights[index][keys[:count]], found[:count], rtol=1e-4, atol=3e-5)
        assert visible[index][keys[:count]].all()
        assert len(set(keys[:count])) == count
        assert (keys[count:] == -1).all()
        assert (found[count:] == 0).all()


def _assert_map(evidence: Evidence[torch.Tensor], weights: np.ndarray, sees: np.ndarray) -> None:
    assert evidence.map is not None
    batch, num_heads, seq_len, kv_len = weights.shape
    rows, columns = min(3, seq_len), min(3, kv_len)
    expected = np.zeros((batch, num_heads, rows, columns))
    for b, h, r, c in np.ndindex(expected.shape):
        its_rows = [i for i in range(seq_len) if i * rows // seq_len == r and sees[b, h, i]]
        its_keys = [j for j in range(kv_len) if j * columns // kv_len == c]
        if its_rows:
            expected[b, h, r, c] = weights[b, h][np.ix_(its_rows, its_keys)].sum(-1).mean()
    np.testing.assert_allclose(evidence.map.numpy(), expected, rtol=1e-4, atol=3e-5)


@pytest.mark.parametrize("mask_name", all_masks(2, 6, 5, 7))
def test_every_statistic_under_every_mask(mask_name: str) -> None:
    case = Case(mask_name, *tensors("peaked"), {"mask": all_masks(2, 6, 5, 7)[mask_name]})
    assert_evidence_is_exact(case)


@pytest.mark.parametrize("mask_name", ["packed", "packed causal"])
def test_every_statistic_of_packed_documents(mask_name: str) -> None:
    mask = all_masks(2, 6, 7, 7)[mask_name]
    assert_evidence_is_exact(Case(mask_name, *tensors("peaked", seq_len=7), {"mask": mask}))


@pytest.mark.parametrize("option_name", all_options(2, 6, 5, 7))
def test_every_statistic_with_every_option(option_name: str) -> None:
    options = {"mask": Causal(), **all_options(2, 6, 5, 7)[option_name]}
    evidence = assert_evidence_is_exact(Case(option_name, *tensors("randn"), options))
    assert (evidence.sink is not None) == ("sinks" in options)


@pytest.mark.parametrize("num_kv_heads", [1, 2, 6])
def test_every_statistic_of_grouped_heads(num_kv_heads: int) -> None:
    assert_evidence_is_exact(
        Case("grouped", *tensors("peaked", num_kv_heads=num_kv_heads), {"mask": Causal()})
    )


def test_more_queries_than_keys_have_no_own_token_before_the_first_key() -> None:
    evidence = assert_evidence_is_exact(Case("tall", *tensors("randn", seq_len=7, kv_len=5)))
    assert evidence.self_token[..., :2].isnan().all()
    assert evidence.self_token[..., 2:].isfinite().all()
    assert evidence.previous_token[..., :3].isnan().all()


def test_blocks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("blocks", *tensors("peaked", seq_len=13, kv_len=17), {"mask": Causal() & Lengths([3, 17])})
    whole = assert_evidence_is_exact(case)
    monkeypatch.setattr(plain, "SCORES_PER_BLOCK", 2 * 6 * 17 * 4)
    parts = assert_evidence_is_exact(case)
    assert whole.map is not None
    assert parts.map is not None
    torch.testing.assert_close(whole.map, parts.map)


def test_by_hand() -> None:
    """Two heads over three tokens: one looks back by one, the other at itself."""
    query = 20 * torch.eye(3).expand(1, 2, 3, 3)
    key = torch.stack([torch.eye(3).roll(-1, 0), torch.eye(3)])[None]
    evidence = ops.observe(query, key, key, mask=Causal(), scale=5.0, collect=Collect(top_k=1)).evidence
    back, own = evidence.previous_token[0], evidence.self_token[0]
    torch.testing.assert_close(back, torch.tensor([[torch.nan, 1, 1], [torch.nan, 0, 0]]), equal_nan=True)
    torch.testing.assert_close(own, torch.tensor([[1.0, 0, 0], [1, 1, 1]]))
    torch.testing.assert_close(evidence.mean_distance[0], torch.tensor([[0.0, 1, 1], [0, 0, 0]]))
    torch.testing.assert_close(evidence.first_token[0], torch.tensor([[1.0, 1, 0], [1, 0, 0]]))
    torch.testing.assert_close(evidence.entropy, torch.zeros(1, 2, 3))
    assert evidence.top_keys is not None
    assert evidence.top_keys[0, :, :, 0].tolist() == [[0, 0, 1], [0, 1, 2]]


def test_the_first_token_is_the_first_that_any_head_sees() -> None:
    mask = torch.ones(1, 6, 5, 7, dtype=torch.bool)
    mask[:, :3, :, :2] = False
    mask[:, 3:, :, 0] = False
    found = assert_evidence_is_exact(Case("first", *tensors("randn", batch=1), {"mask": mask})).first_token
    assert (found[:, :3] == 0).all()  # the first is key 1, which these heads do not see
    assert (found[:, 3:] > 0).all()


def test_even_weights_have_the_entropy_of_their_number() -> None:
    zeros = torch.zeros(1, 1, 5, 3)
    found = ops.observe(zeros, zeros, zeros, mask=Causal()).evidence.entropy
    torch.testing.assert_close(found[0, 0], torch.arange(1.0, 6.0).log())


def test_only_what_is_asked_for_is_kept() -> None:
    evidence = ops.observe(*tensors("randn")).evidence
    assert (
        evidence.weights is evidence.map is evidence.top_weights is evidence.top_keys is evidence.sink is None
    )


def test_more_top_keys_than_keys_are_as_many_as_there_are() -> None:
    evidence = ops.observe(*tensors("randn"), collect=Collect(top_k=50)).evidence
    assert evidence.top_keys is not None
    assert evidence.top_keys.shape == (2, 6, 5, 7)


def test_statistics_of_sixteen_bit_inputs_are_float32() -> None:
    evidence = ops.observe(*tensors("randn", dtype=torch.bfloat16), collect=EVERYTHING).evidence
    for name in (*(statistic.name for statistic in STATISTICS), "weights", "map", "top_weights"):
        assert getattr(evidence, name).dtype == torch.float32


def test_gates_scale_the_output_and_not_the_evidence() -> None:
    made = tensors("randn")
    plain_one = ops.observe(*made, collect=EVERYTHING)
    gated = ops.observe(*made, head_gates=torch.zeros(6), collect=EVERYTHING)
    assert (gated.output == 0).all()
    assert gated.evidence.weights is not None
    assert plain_one.evidence.weights is not None
    assert torch.equal(gated.evidence.weights, plain_one.evidence.weights)


@pytest.mark.parametrize("sizes", [{"batch": 0}, {"seq_len": 0}, {"kv_len": 0}])
def test_zero_sizes_have_evidence_of_nothing(sizes: dict[str, int]) -> None:
    evidence = ops.observe(*tensors("randn", **sizes), mask=Causal(), collect=EVERYTHING).evidence
    assert evidence.entropy.isnan().all()
    assert not evidence.visible.any()
    assert evidence.weights is not None
    assert evidence.weights.numel() == 0


def test_memory_grows_with_the_keys_and_not_with_queries_times_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "SCORES_PER_BLOCK", 2**12)
    made = tensors("randn", batch=1, num_heads=1, num_kv_heads=1, seq_len=503, kv_len=503, head_dim=2)
    with torch.no_grad(), torch.profiler.profile(profile_memory=True) as profile:
        ops.observe(*made, mask=Causal(), collect=Collect(map_size=8, top_k=2))
    largest = max(event.cpu_memory_usage for event in profile.events())
    assert largest <= 8 * 2**12  # a block of 8-byte numbers; all scores would be 1 MiB
