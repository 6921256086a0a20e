import numpy as np
import pytest

from headwise.errors import ArgumentError
from headwise.evidence import STATISTICS, Collect, Evidence


@pytest.mark.parametrize("name", ["map_size", "top_k"])
@pytest.mark.parametrize(
    ("given", "message"),
    [(0, "=0 must be at least 1"), (2.0, "=2.0 is a float; pass an integer"), (True, "=True is a bool")],
)
def test_a_count_that_cannot_be_is_refused(name: str, given: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=name + message):
        Collect(**{name: given})


def test_integers_of_numpy_are_counts() -> None:
    assert Collect(map_size=np.int64(4)) == Collect(map_size=4)


def test_every_statistic_is_a_field_of_evidence() -> None:
    assert {statistic.name for statistic in STATISTICS} <= set(Evidence.__dataclass_fields__)
