"""What `observe` refuses beyond what every attention call does."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from headwise.errors import ArgumentError
from headwise.evidence import Collect

from ..attention_cases import tensors
from ..evidence_oracle import Observe
from .observe_ways import every_observer


@every_observer
@pytest.mark.parametrize(
    ("collect", "message"),
    [
        (Collect(heads=[0, 6]), r"heads\[1\]=6 does not exist; there is 0 to 5"),
        (Collect(pairs=[(0, 1), (7, 2)]), r"pairs\[1\]\[0\]=7 does not exist; there is 0 to 5"),
        (Collect(rows=[5]), r"rows\[0\]=5 does not exist; of 5 query rows there is 0 to 4, or -5 to -1"),
        (Collect(rows=[0, -6]), r"rows\[1\]=-6 does not exist; of 5 query rows"),
        (Collect(rows=[4, -1]), r"rows\[0\] and rows\[1\] are both 4; name each once"),
        (8, r"collect=8 is a int; pass a Collect, such as Collect\(top_k=8\)"),
        (Collect, r"collect=<class .* is a type; pass a Collect"),
    ],
)
def test_what_the_call_does_not_have_cannot_be_collected(
    observe: Observe, collect: Any, message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        observe(*tensors("randn"), collect=collect)


@every_observer
def test_no_query_has_no_row_to_keep(observe: Observe) -> None:
    with pytest.raises(ArgumentError, match=r"rows\[0\]=-1 does not exist; of 0 query rows there is none"):
        observe(*tensors("randn", seq_len=0), collect=Collect(rows=[-1]))


@every_observer
@pytest.mark.parametrize(
    ("first_key", "message"),
    [
        (7, r"first_key=7 does not exist; there are 7 keys; pass one of them, or a negative"),
        ([0, 9], r"first_key=9 does not exist"),
        ([0], r"first_key has 1 keys; pass one for each of the 2 batch elements, or an integer"),
        (torch.zeros(3, dtype=torch.long), r"first_key has 3 keys; pass one for each of the 2"),
        (torch.zeros(2), r"first_key=0.0 is a float; pass an integer"),
        (torch.zeros(2, 1, dtype=torch.long), r"first_key=\[0\] is a list; pass an integer"),
        (True, r"first_key=True is a bool; pass an integer"),
        (1.0, r"first_key=1.0 is a float; pass an integer"),
    ],
)
def test_a_first_key_that_cannot_be_is_refused(observe: Observe, first_key: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        observe(*tensors("randn"), first_key=first_key)
