"""The decisions of dropout are as good as chance: their share, and that none tells anything of another."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from headwise.ops import arguments, dropout

SIGMAS = 5
"""How far off chance may be: once in some million tests, and the seeds here are fixed."""

SIZES = {"batch": 3, "num_heads": 7, "seq_len": 61, "kv_len": 523}


def kept(*, share: float = 0.3, seed: int = 1) -> Tensor:
    """Return the decisions of one call of these sizes, boolean."""
    batch, num_heads, seq_len, kv_len = SIZES.values()
    query, key = torch.zeros(batch, num_heads, seq_len, 1), torch.zeros(batch, num_heads, kv_len, 1)
    call = replace(arguments.check(query, key, key, dropout=share), seed=torch.tensor([seed]))
    return dropout.kept(call, slice(0, seq_len)) != 0


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("seed", [1, 2**33 + 1])
def test_the_share_that_is_kept_is_the_one_asked_for_everywhere(share: float, seed: int) -> None:
    found = kept(share=share, seed=seed).double()
    for axes in ([0, 1, 2, 3], [0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]):
        means = found.mean(axes)
        count = found.numel() / means.numel()
        bound = SIGMAS * math.sqrt(share * (1 - share) / count)
        assert (means - (1 - share)).abs().max() < max(bound, SIGMAS / count), f"mean over {axes}"


@pytest.mark.parametrize(
    ("axis", "apart"), [(0, 1), (0, 2), *((axis, apart) for axis in (1, 2, 3) for apart in (1, 2, 4))]
)
def test_neighbours_tell_nothing_of_each_other(axis: int, apart: int) -> None:
    found = kept()
    length = found.shape[axis] - apart
    assert_independent(found.narrow(axis, 0, length), found.narrow(axis, apart, length))


@pytest.mark.parametrize("other", [2, 0, -1, 1 + 2**32, 1 + 2**62])
def test_seeds_tell_nothing_of_each_other(other: int) -> None:
    assert_independent(kept(seed=1), kept(seed=other))


def test_rows_and_heads_do_not_change_places() -> None:
    """The counter has a word for each: head 2 of row 1 is not head 1 of row 2."""
    found = kept()[0]
    assert_independent(found[:3, 3:6], found[3:6, :3].transpose(0, 1))


def assert_independent(one: Tensor, other: Tensor, share: float = 0.3) -> None:
    """Hold the correlation of two sets of decisions to 0."""
    products = (one.double() - (1 - share)) * (other.double() - (1 - share))
    deviation = products.mean() / (share * (1 - share)) * math.sqrt(one.numel())
    assert deviation.abs() < SIGMAS, f"{deviation:.1f} standard deviations from chance"
