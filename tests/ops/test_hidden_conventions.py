"""What is hidden is not read, and a row that sees nothing is zero: conventions, by the way of every path."""

from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.masks import Causal, Lengths, Window

from ..attention_cases import all_masks, tensors
from ..naive import gradients, naive_attention
from .ways import Way, differentiable_ways, every_way, takes

# With a value of its own width the path is plain, otherwise it is fused where the numbers allow it.
both_paths = pytest.mark.parametrize("value_head_dim", [11, 13], ids=["fused", "plain"])


@every_way
@both_paths
def test_a_row_that_sees_nothing_is_exactly_zero(way: Way, value_head_dim: int) -> None:
    made = tensors("peaked", value_head_dim=value_head_dim)
    for name, mask in all_masks(2, 6, 5, 7).items():
        for sinks in (None, torch.randn(6)):
            if not takes(way, made[0], {"mask": mask, "sinks": sinks}):
                continue
            found = way(*made, mask=mask, sinks=sinks)
            empty = naive_attention(*made, mask=mask).logsumexp == -torch.inf
            assert (found.output[empty] == 0).all(), name
            assert torch.equal(found.logsumexp == -torch.inf, empty), name
            assert found.output.isfinite().all(), name


@differentiable_ways
@both_paths
def test_a_row_that_sees_nothing_has_gradient_zero_and_spoils_no_other(way: Way, value_head_dim: int) -> None:
    made = list(tensors("randn", value_head_dim=value_head_dim))
    mask = torch.ones(5, 7, dtype=torch.bool)
    mask[2] = False
    upstream = torch.randn(2, 6, 5, value_head_dim)
    found = gradients(lambda *leaves: way(*leaves, mask=mask).output, made, upstream)
    assert (found[0][:, :, 2] == 0).all()
    expected = gradients(lambda *leaves: naive_attention(*leaves, mask=mask).output, made, upstream)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@every_way
@both_paths
@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("poisoned", ["key", "value"])
@pytest.mark.parametrize("mask_name", ["causal", "lengths", "boolean", "float", "window"])
def test_what_is_hidden_is_never_read(
    *, way: Way, value_head_dim: int, poison: float, poisoned: str, mask_name: str
) -> None:
    query, key, value = tensors("randn", value_head_dim=value_head_dim)
    mask = all_masks(2, 6, 5, 7)[mask_name]
    clean = way(query, key, value, mask=mask).output
    bad_key = 5
    {"key": key, "value": value}[poisoned][:, :, bad_key] = poison
    found = way(query, key, value, mask=mask).output
    visible = naive_visible(query, key, mask)[..., bad_key]
    torch.testing.assert_close(found[~visible], clean[~visible])
    if poison != -torch.inf or poisoned == "value":
        assert (~found[visible].isfinite()).any(-1).all()


def naive_visible(query: Tensor, key: Tensor, mask: Any) -> Tensor:
    identity = torch.eye(key.shape[2]).expand(*key.shape[:3], key.shape[2])
    return naive_attention(query, torch.zeros_like(key), identity, mask=mask).output > 0


@every_way
@both_paths
@pytest.mark.parametrize("poisoned", ["key", "value"])
def test_nan_in_one_kv_head_reaches_the_query_heads_of_its_group_only(
    way: Way, value_head_dim: int, poisoned: str
) -> None:
    query, key, value = tensors("randn", value_head_dim=value_head_dim)
    clean = way(query, key, value, mask=Causal()).output
    {"key": key, "value": value}[poisoned][1, 1, 0] = torch.nan
    found = way(query, key, value, mask=Causal()).output
    assert found[1, 2:4].isnan().all()
    for heads in (slice(0, 2), slice(4, 6)):
        torch.testing.assert_close(found[:, heads], clean[:, heads])
    torch.testing.assert_close(found[0], clean[0])


@every_way
@both_paths
def test_a_bias_counts_where_it_is_seen_and_nowhere_else(way: Way, value_head_dim: int) -> None:
    made = tensors("randn", seq_len=7, value_head_dim=value_head_dim)
    clean = way(*made, mask=Causal()).output
    bias = torch.zeros(7, 7)
    bias[2, 5], bias[4, 1] = torch.nan, torch.nan  # hidden, seen
    found = way(*made, mask=Causal(), bias=bias).output
    assert found[:, :, 4].isnan().all()
    others = [0, 1, 2, 3, 5, 6]
    torch.testing.assert_close(found[:, :, others], clean[:, :, others])


@every_way
@both_paths
def test_infinities_of_both_signs_meet_only_in_rows_that_see_both(way: Way, value_head_dim: int) -> None:
    query, key, value = tensors("randn", seq_len=7, value_head_dim=value_head_dim)
    value[:, :, 2], value[:, :, 4] = torch.inf, -torch.inf
    found = way(query, key, value, mask=Window.of(3)).output
    assert found[:, :, :2].isfinite().all()
    assert (found[:, :, 2:4] == torch.inf).all()
    assert found[:, :, 4].isnan().all()
    assert (found[:, :, 5:] == -torch.inf).all()


@differentiable_ways
@both_paths
@pytest.mark.parametrize("poisoned", ["query", "key", "value"])
def test_what_is_hidden_reaches_no_gradient(way: Way, value_head_dim: int, poisoned: str) -> None:
    made = dict(
        zip(
            ("query", "key", "value"), tensors("randn", seq_len=7, value_head_dim=value_head_dim), strict=True
        )
    )
    upstream = torch.randn(2, 6, 7, value_head_dim)
    upstream[:, :, 5:] = 0.0
    mask = Causal() & (torch.arange(7) != 5)[:, None]  # row 5 sees nothing, so that its query is nobody's
    if poisoned != "query":
        mask = Lengths([5, 5])
    clean = gradients(lambda *leaves: way(*leaves, mask=mask).output, list(made.values()), upstream)
    made[poisoned][:, :, 5] = torch.nan
    found = gradients(lambda *leaves: way(*leaves, mask=mask).output, list(made.values()), upstream)
    for one, other in zip(found, clean, strict=True):
        torch.testing.assert_close(one, other)


@every_way
@both_paths
@pytest.mark.parametrize("kv_len", [3, 7, 65])  # torch's kernel treats few keys differently
@pytest.mark.parametrize("mask", [None, Causal(), Window(left=1)], ids=["unmasked", "causal", "window"])
def test_a_nan_query_is_nan_in_its_own_row_only(
    way: Way, value_head_dim: int, kv_len: int, mask: Any
) -> None:
    query, key, value = tensors("randn", seq_len=3, kv_len=kv_len, value_head_dim=value_head_dim)
    clean = way(query, key, value, mask=mask).output
    query[:, :, 1] = torch.nan
    found = way(query, key, value, mask=mask).output
    assert found[:, :, 1].isnan().all()
    torch.testing.assert_close(found[:, :, [0, 2]], clean[:, :, [0, 2]])


@every_way
@both_paths
def test_a_nan_query_that_sees_nothing_gives_zero(way: Way, value_head_dim: int) -> None:
    query, key, value = tensors("randn", value_head_dim=value_head_dim)
    query[:, :, 3] = torch.nan
    mask = torch.ones(5, 7, dtype=torch.bool)
    mask[3] = False
    assert (way(query, key, value, mask=mask).output[:, :, 3] == 0).all()


@every_way
@both_paths
def test_zero_sized_batch_query_and_keys(way: Way, value_head_dim: int) -> None:
    for sizes in ({"batch": 0}, {"seq_len": 0}, {"kv_len": 0}, {"seq_len": 0, "kv_len": 0}):
        for mask in (None, Causal(), torch.ones(1, 1, dtype=torch.bool)):
            for sinks in (None, torch.randn(6)):
                made = tensors("randn", value_head_dim=value_head_dim, **sizes)
                found = way(*made, mask=mask, sinks=sinks)
                expected = (sizes.get("batch", 2), 6, sizes.get("seq_len", 5))
                assert found.output.shape == (*expected, value_head_dim)
                assert (found.output == 0).all()
                assert found.logsumexp.shape == expected
                assert (found.logsumexp == -torch.inf).all()


@differentiable_ways
def test_zero_sizes_have_gradients(way: Way) -> None:
    for sizes in ({"batch": 0}, {"seq_len": 0}, {"kv_len": 0}):
        made = list(tensors("randn", **sizes))
        found = gradients(lambda *leaves: way(*leaves, mask=Causal()).output, made, torch.ones_like(made[0]))
        assert all((gradient == 0).all() for gradient in found)
