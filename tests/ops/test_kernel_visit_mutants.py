"""Wrong questions to the kernel's second visit, and wrong readings of its findings, must be caught."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.evidence import Collect
from headwise.kernels import observe as compiled
from headwise.masks import Causal, Lengths
from headwise.ops import kernel_visit
from headwise.ops.arguments import Call
from headwise.ops.kernel_visit import _Cells, _Visit

from ..attention_cases import Case, tensors
from ..evidence_oracle import hold_evidence
from .observe_ways import by_visit

COLLECT = Collect(
    weights=True,
    map_size=5,
    top_k=3,
    offsets=[2, 0],
    rows=[-1, 1],
    received=True,
    heads=[4, 1],
    pairs=[(0, 5)],
    local_window=2,
)
SEQ_LEN, KV_LEN = 35, 37
KEPT: list[Tensor] = []
"""Memory that altered findings point to."""

Alter = Callable[[Any, Any], tuple[Any, Any]]
VISIT, VISIBLE_KEYS, MEAN, OF_HEADS = (
    compiled.visit,
    _Visit._visible_keys,
    _Cells.mean,
    kernel_visit.of_heads,
)


def observed() -> None:
    made = tensors("randn", num_heads=6, num_kv_heads=3, seq_len=SEQ_LEN, kv_len=KV_LEN)
    options = {
        "mask": Causal() & Lengths([KV_LEN, 29], padding="left") & torch.ones(1, 6, 1, KV_LEN).bool(),
        "bias": torch.randn(1, 6, SEQ_LEN, KV_LEN),
        "sinks": torch.randn(6),
    }
    hold_evidence(Case("mutants", *made, options), COLLECT, observe=by_visit)


def pointing(field: str, numbers: Tensor) -> Alter:
    """Return what lets a field of the findings point to other numbers."""
    KEPT.append(numbers)
    return lambda operands, findings: (operands, findings._replace(**{field: numbers.data_ptr()}))


def changed(field: str, by: int) -> Alter:
    return lambda operands, findings: (operands, findings._replace(**{field: getattr(findings, field) + by}))


def asked(field: str, value: Any) -> Alter:
    return lambda operands, findings: (operands._replace(**{field: value}), findings)


def gating(gates: Sequence[float]) -> Alter:
    KEPT.append(torch.tensor(gates))
    return asked("gates", KEPT[-1].data_ptr())


def of_all_rows(number: float) -> Tensor:
    return torch.full((2, 6, SEQ_LEN), number)


def row_places(*places: tuple[int, int]) -> Tensor:
    found = torch.arange(SEQ_LEN)
    for row, place in places:
        found[row] = place
    return found


QUESTIONS: dict[str, Alter] = {
    "a narrower window": changed("local_window", -1),
    "offsets in another order": pointing("offsets", torch.tensor([0, 1, 0, 2])),
    "the next token for the previous": pointing("offsets", torch.tensor([0, -1, 2, 0])),
    "the first of all keys": pointing("first_keys", torch.zeros(2, dtype=torch.long)),
    "the keys of another batch element": pointing("first_keys", torch.tensor([8, 0])),
    "rows in each other's place": pointing("row_places", row_places((3, 4), (4, 3))),
    "a row that is not kept": pointing("row_places", row_places((7, -1))),
    "the gates of other heads": gating([0, 0, 1, 1, 0, 0]),
    "sums of one": pointing("sums", of_all_rows(1.0)),
    "maxima of nothing": pointing("maxima", of_all_rows(0.0)),
    "one cell of rows too few": changed("row_cells", -1),
    "one cell of keys too few": changed("key_cells", -1),
    "nothing received": changed("collects_received", -1),
    "one key too few among the largest": changed("top_k", -1),
    "another scale": asked("scale", 0.2),
    "no bias": asked("bias", None),
}


def without_the_last_chunk(parts: Tensor) -> Tensor:
    return parts[:-1].sum(0)


def spread(cells: _Cells, pooled: Tensor, visible: Tensor) -> Tensor:
    return MEAN(cells, pooled, torch.ones_like(visible))


def one_chunk_late(cells: _Cells, pooled: Tensor, visible: Tensor) -> Tensor:
    return MEAN(cells, pooled.roll(1, 2), visible)


def sorted_rows(visit: _Visit, kept: Tensor) -> Tensor:
    return kept[:, :, [1, SEQ_LEN - 1]]


def other_heads(call: Call, heads: Sequence[int]) -> Call:
    """Take the bias of the first heads."""
    found, bias = OF_HEADS(call, heads), call.visibility.additive[0][:, : len(heads)]
    return replace(found, visibility=replace(found.visibility, additive=(bias,)))


def other_kv_heads(call: Call, heads: Sequence[int]) -> Call:
    return replace(OF_HEADS(call, heads), key=call.key[:, : len(heads)])


READINGS: dict[str, tuple[Any, str, Any]] = {
    "all keys are visible": (
        _Visit,
        "_visible_keys",
        lambda visit: torch.full_like(VISIBLE_KEYS(visit), KV_LEN),
    ),
    "received without the last chunk": (kernel_visit, "_sum_in_order", without_the_last_chunk),
    "rows without a key in the mean": (_Cells, "mean", spread),
    "a chunk in the cells of the next": (_Cells, "mean", one_chunk_late),
    "asked rows in their own order": (_Visit, "_asked_rows", sorted_rows),
    "the bias of other heads in pairs": (kernel_visit, "of_heads", other_heads),
    "the keys of other heads in pairs": (kernel_visit, "of_heads", other_kv_heads),
    "heads in the order of the layer": (
        Collect,
        "heads_of",
        lambda collect, count: tuple(sorted(collect.heads or range(count))),
    ),
}


@pytest.fixture(autouse=True)
def poisoned_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernel does not write is NaN, or a key that is not there, and never right by luck."""
    monkeypatch.setattr(kernel_visit, "_floats", lambda *shape: torch.full(shape, torch.nan))
    monkeypatch.setattr(kernel_visit, "_integers", lambda *shape: torch.full(shape, -77))


def altered(alter: Alter, sizes: Any, operands: Any, findings: Any, *, num_threads: int) -> None:
    VISIT(sizes, *alter(operands, findings), num_threads=num_threads)


def test_the_right_question_and_reading_pass() -> None:
    observed()


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_wrong_question_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "visit", partial(altered, QUESTIONS[name]))
    with pytest.raises(AssertionError, match="of mutants"):
        observed()


@pytest.mark.parametrize("name", READINGS)
def test_a_wrong_reading_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*READINGS[name])
    with pytest.raises(AssertionError, match="of mutants"):
        observed()
