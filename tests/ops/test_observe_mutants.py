"""What holds evidence to its definitions must catch wrong ones: here those of plain torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.evidence import Collect
from headwise.masks import Causal, Lengths
from headwise.ops import plain
from headwise.ops.reducers import gathering, keys, measures, pairs
from headwise.ops.rows import RowFacts

from ..attention_cases import Case, tensors
from ..evidence_oracle import hold_evidence
from .observe_ways import by_plain

COLLECT = Collect(
    map_size=3,
    top_k=2,
    offsets=[2, 0],
    rows=[-1, 1],
    received=True,
    heads=[4, 1],
    pairs=[(0, 1)],
    local_window=2,
)
RIGHT = {name: getattr(measures, name) for name in ("entropy", "first_token", "local", "sink", "at_offsets")}
OF_HEADS = RowFacts.of_heads


def shifted(by: int) -> Callable[[RowFacts], RowFacts]:
    return lambda facts: replace(facts, positions=facts.positions + by)


class LastOfEqualKeys(keys.LargestKey):
    def add(self, facts: RowFacts) -> None:
        super().add(replace(facts, weights=facts.weights.flip(-1), hidden=facts.hidden.flip(-1)))


class HiddenKeysToo(keys.TopKeys):
    def add(self, facts: RowFacts) -> None:
        super().add(replace(facts, hidden=torch.zeros_like(facts.hidden)))


class FromTheEnd(keys.ChosenRows):
    def __init__(self, rows: Any, *others: Any) -> None:
        super().__init__([*reversed(rows)], *others)


class LastBlockOnly(keys.Received):
    def add(self, facts: RowFacts) -> None:
        self._mass.zero_()
        super().add(facts)


class EveryRowInTheMean(keys.PooledMap):
    def add(self, facts: RowFacts) -> None:
        super().add(replace(facts, visible_keys=torch.ones_like(facts.visible_keys)))


class WithoutTheSink(pairs.Divergence):
    def add(self, facts: RowFacts) -> None:
        super().add(replace(facts, sink=torch.zeros_like(facts.sink)))


def rowless(facts: RowFacts) -> Tensor:
    return torch.special.entr(facts.weights).sum(-1)  # 0, not NaN, where no key is seen


MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "entropy in bits": (measures, "entropy", lambda facts: RIGHT["entropy"](facts) / torch.tensor(2.0).log()),
    "entropy of rows without a key": (measures, "entropy", rowless),
    "entropy by the log of all keys": (
        measures,
        "normalised_entropy",
        lambda facts: RIGHT["entropy"](facts) / torch.tensor(7.0).log(),
    ),
    "first of all keys": (
        measures,
        "first_token",
        lambda facts: RIGHT["first_token"](replace(facts, first_key=0 * facts.first_key)),
    ),
    "next for previous": (measures, "previous_token", lambda facts: measures._back(facts, -1)),
    "upper left": (measures, "self_token", lambda facts: facts.at_key(facts.positions - 2)[0]),
    "distance off by one": (
        measures,
        "mean_distance",
        lambda facts: (facts.weights * shifted(1)(facts).distances).sum(-1),
    ),
    "window without its edge": (measures, "local", lambda window: RIGHT["local"](window - 1)),
    "sink of what is left to it": (measures, "sink", lambda facts: 1 - RIGHT["sink"](facts)),
    "offsets sorted": (measures, "at_offsets", lambda offsets: RIGHT["at_offsets"](sorted(offsets))),
    "flipped keys": (gathering, "LargestKey", LastOfEqualKeys),
    "hidden keys among the top": (gathering, "TopKeys", HiddenKeysToo),
    "rows in another order": (gathering, "ChosenRows", FromTheEnd),
    "received by the last rows": (gathering, "Received", LastBlockOnly),
    "rows without a key in the mean": (gathering, "PooledMap", EveryRowInTheMean),
    "divergence of what sinks left": (gathering, "Divergence", WithoutTheSink),
    "heads in the order of the layer": (
        RowFacts,
        "of_heads",
        lambda facts, heads: OF_HEADS(facts, heads.sort().values),
    ),
}


def observed() -> None:
    options = {"mask": Causal() & Lengths([2, 6], padding="left"), "sinks": torch.randn(6)}
    hold_evidence(Case("mutants", *tensors("randn"), options), COLLECT, observe=by_plain)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_definition_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "SCORES_PER_BLOCK", 2**7)
    observed()
    monkeypatch.setattr(*MUTANTS[name])
    with pytest.raises(AssertionError, match="of mutants"):
        observed()
