from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch

from headwise.errors import ArgumentError
from headwise.evidence import OTHER_STATISTICS, STATISTICS, Collect, Evidence


@pytest.mark.parametrize("name", ["map_size", "top_k"])
@pytest.mark.parametrize(
    ("given", "message"),
    [(0, "=0 must be at least 1"), (2.0, "=2.0 is a float; pass an integer"), (True, "=True is a bool")],
)
def test_a_count_that_cannot_be_is_refused(name: str, given: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=name + message):
        Collect(**{name: given})


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"weights": 1}, r"weights=1 is a int; pass True or False"),
        ({"received": None}, r"received=None is a NoneType; pass True or False"),
        ({"local_window": -1}, r"local_window=-1 must be at least 0"),
        ({"local_window": True}, r"local_window=True is a bool; pass an integer"),
        ({"offsets": [1, -2]}, r"offsets\[1\]=-2 must be at least 0, for it counts back"),
        ({"offsets": 3}, r"offsets=3 is a int; pass a list, such as offsets=\[3\]"),
        ({"offsets": "12"}, r"offsets='12' is a str; pass a list"),
        ({"offsets": None}, r"offsets=None is a NoneType; pass a list"),
        ({"offsets": [True]}, r"offsets\[0\]=True is a bool; pass an integer"),
        ({"offsets": [0, 5, 5]}, r"offsets\[1\] and offsets\[2\] are both 5; name each once"),
        ({"rows": [0.0]}, r"rows\[0\]=0.0 is a float; pass an integer"),
        ({"rows": [-1, 2, -1]}, r"rows\[0\] and rows\[2\] are both -1; name each once"),
        ({"rows": [2**40]}, r"rows\[0\]=1099511627776 is too large"),
        ({"heads": []}, r"heads has no head in it, .* leave it out for all heads"),
        ({"heads": [-1]}, r"heads\[0\]=-1 must be at least 0"),
        ({"heads": [False]}, r"heads\[0\]=False is a bool"),
        ({"heads": [3, 3]}, r"heads\[0\] and heads\[1\] are both 3; name each once"),
        (
            {"pairs": [(0, 1, 2)]},
            r"pairs\[0\]=\(0, 1, 2\) must be two different query heads, such as \(0, 1\)",
        ),
        ({"pairs": [(4, 4)]}, r"pairs\[0\]=\(4, 4\) must be two different query heads"),
        ({"pairs": [(0, -1)]}, r"pairs\[0\]=-1 must be at least 0"),
        ({"pairs": (0, 1)}, r"pairs\[0\]=0 is a int; pass a list"),
        ({"pairs": [(0, 1), (1, 0)]}, r"pairs\[0\] and pairs\[1\] are both \(0, 1\); name each once"),
    ],
)
def test_what_cannot_be_collected_is_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Collect(**asked)


def test_integers_of_numpy_are_counts() -> None:
    assert Collect(map_size=np.int64(4)) == Collect(map_size=4)


def test_sequences_of_any_kind_are_kept_as_tuples_of_integers() -> None:
    asked = Collect(offsets=range(3), rows=np.array([2, -1]), heads=torch.tensor([1, 0]), pairs=[[0, 1]])
    same = Collect(offsets=(0, 1, 2), rows=(2, -1), heads=(1, 0), pairs=((0, 1),))
    assert asked == same
    assert hash(asked) == hash(same)
    assert all(type(row) is int for row in asked.rows)


def test_every_statistic_is_a_field_of_evidence_and_in_one_list() -> None:
    names = [statistic.name for statistic in (*STATISTICS, *OTHER_STATISTICS)]
    assert set(names) <= set(Evidence.__dataclass_fields__)
    assert len(set(names)) == len(names)


def made_evidence() -> Evidence[torch.Tensor]:
    """Evidence of 2 batch elements, 3 heads and 5 rows; the first 2 rows have no number."""
    numbers = torch.randn(2, 3, 5, dtype=torch.float64)
    numbers[:, :, :2] = torch.nan
    rows = {field.name: numbers + place for place, field in enumerate(fields(Evidence)) if place < 9}
    return Evidence(**{**rows, "largest_key": numbers.nan_to_num().long()}, visible=~numbers.isnan())


def test_a_head_s_number_is_the_mean_over_the_rows_that_have_one() -> None:
    evidence = made_evidence()
    found = evidence.per_head()
    always = {statistic.name for statistic in (*STATISTICS, *OTHER_STATISTICS)} - {"sink"}
    assert found.keys() == always
    for name, means in found.items():
        rows = getattr(evidence, name)[:, :, 2:].transpose(0, 1).flatten(1)
        np.testing.assert_allclose(means, rows.mean(1).numpy(), rtol=1e-12)


@pytest.mark.parametrize("batch", [1, 2])
def test_rows_that_do_not_count_are_left_out(batch: int) -> None:
    counted = torch.tensor([[True, True, True, False, True], [False, True, True, True, False]])[:batch]
    evidence = made_evidence()
    rows = evidence.entropy.transpose(0, 1)[:, counted.expand(2, 5) & evidence.visible[:, 0]]
    np.testing.assert_allclose(evidence.per_head(counted)["entropy"], rows.mean(1).numpy(), rtol=1e-12)


def test_no_row_leaves_no_number() -> None:
    found = made_evidence().per_head(torch.zeros(2, 5, dtype=torch.bool))
    assert all(np.isnan(means).all() for means in found.values())


def test_numbers_of_offsets_and_pairs_keep_their_axes() -> None:
    offsets, divergence = torch.randn(2, 3, 5, 4), torch.randn(2, 2, 5)
    found = replace(made_evidence(), at_offsets=offsets, divergence=divergence, sink=divergence).per_head()
    np.testing.assert_allclose(found["at_offsets"], offsets.mean((0, 2)).numpy(), atol=1e-6)
    np.testing.assert_allclose(found["divergence"], divergence.mean((0, 2)).numpy(), atol=1e-6)
    np.testing.assert_allclose(found["sink"], divergence.mean((0, 2)).numpy(), atol=1e-6)


@pytest.mark.parametrize(
    "counted", [torch.ones(2, 5), torch.ones(3, 5).bool(), torch.ones(5).bool(), [[1] * 5]]
)
def test_rows_that_count_must_fit(counted: Any) -> None:
    with pytest.raises(ArgumentError, match=r"counted has dtype .* must be boolean and \(2, 5\) or \(1, 5\)"):
        made_evidence().per_head(counted)
