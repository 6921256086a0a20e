"""A backward pass with one fault each must be caught by the cases that the kernel is held to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.kernels.geometry import STRETCH
from headwise.kernels.host import BLOCK_ROWS
from headwise.masks import Causal, Intersection, Mask, Window, as_mask
from headwise.ops.results import Gradients

from ..attention_cases import Case, tensors
from .gradient_formula import Formula, Upstream
from .gradient_ways import by_formula, call_of, upstream_of
from .test_kernel_gradient import gradient_cases, is_caught


class KvHeadsTiled(Formula):
    def for_query_heads(self, tensor: Tensor) -> Tensor:
        return tensor.repeat(1, self.case.query.shape[1] // tensor.shape[1], 1, 1)


class KvHeadsTiledOnTheWayBack(Formula):
    def for_kv_heads(self, tensor: Tensor) -> Tensor:
        batch, _, length, width = tensor.shape
        return tensor.reshape(batch, -1, self.case.key.shape[1], length, width).sum(1)


class NoScaleInQuery(Formula):
    scale_of_query = 1.0


class NoScaleInKey(Formula):
    scale_of_key = 1.0


class NoSlope(Formula):
    @property
    def slopes(self) -> Tensor:
        return torch.ones_like(super().slopes)


class NoRowSums(Formula):
    @property
    def row_sums(self) -> Tensor:
        return torch.zeros_like(self.upstream[..., 0])


class RowSumsAreMeans(Formula):
    @property
    def row_sums(self) -> Tensor:
        return self.of_weights.mean(-1)


class OfLogsumexpWithTheWrongSign(Formula):
    @property
    def lowered_by(self) -> Tensor:
        return self.row_sums if self.of_logsumexp is None else self.row_sums + self.of_logsumexp


class NoneOfLogsumexp(Formula):
    @property
    def lowered_by(self) -> Tensor:
        return self.row_sums


class LastStretchDropped(Formula):
    def over_keys(self, weights: Tensor, lines: Tensor) -> Tensor:
        if lines is not self.key:
            return super().over_keys(weights, lines)
        return weights[..., :STRETCH] @ lines[..., :STRETCH, :].nan_to_num()


class FirstStretchTwice(Formula):
    def over_keys(self, weights: Tensor, lines: Tensor) -> Tensor:
        if lines is not self.key:
            return super().over_keys(weights, lines)
        twice = torch.cat([weights, weights[..., :STRETCH]], -1)
        return twice @ torch.cat([lines, lines[..., :STRETCH, :]], -2).nan_to_num()


class LastBlockDropped(Formula):
    def over_rows(self, weights: Tensor, lines: Tensor) -> Tensor:
        rows = lines.shape[2] // BLOCK_ROWS * BLOCK_ROWS
        return weights[:, :, :rows].mT @ lines[:, :, :rows].nan_to_num()


class SinksForgotten(Formula):
    def __init__(self, case: Case, *given: Any) -> None:
        super().__init__(replace(case, options={**case.options, "sinks": None}), *given)


class SinksWithTheWrongSign(Formula):
    @property
    def of_sinks(self) -> Tensor:
        return -super().of_sinks


class BiasAfterTheSlope(Formula):
    @property
    def gradients(self) -> Gradients:
        return super().gradients._replace(bias=self.of_scores * self.slopes)


class BiasOfTheFirstOfAGroup(Formula):
    @property
    def gradients(self) -> Gradients:
        group_size = self.case.query.shape[1] // self.case.key.shape[1]
        is_first = torch.arange(self.case.query.shape[1]) % group_size == 0
        return super().gradients._replace(bias=self.of_scores * is_first[:, None, None])


class HiddenTimesZero(Formula):
    def over_keys(self, weights: Tensor, lines: Tensor) -> Tensor:
        return weights @ lines


class EmptyRowsAreMeans(Formula):
    @property
    def dropped(self) -> Tensor:
        empty = ~self.visible.any(-1, keepdim=True)
        return torch.where(empty, 1 / self.visible.shape[-1], super().dropped)


def with_parts(change: Callable[[Mask], Mask]) -> type[Formula]:
    """Return the formula that takes some mask for another."""

    class Changed(Formula):
        def __init__(self, case: Case, *given: Any) -> None:
            mask = case.options.get("mask")
            if isinstance(mask, Mask):
                mask = Intersection(tuple(change(part) for part in as_mask(mask).parts))
            super().__init__(replace(case, options={**case.options, "mask": mask}), *given)

    return Changed


def upper_left(part: Mask) -> Mask:
    return Causal("upper_left") if isinstance(part, Causal) else part


def narrower(part: Mask) -> Mask:
    return replace(part, left=part.left - 1) if isinstance(part, Window) and part.left else part


MUTANTS: dict[str, type[Formula]] = {
    **{
        mutant.__name__: mutant
        for mutant in (
            KvHeadsTiled,
            KvHeadsTiledOnTheWayBack,
            NoScaleInQuery,
            NoScaleInKey,
            NoSlope,
            NoRowSums,
            RowSumsAreMeans,
            OfLogsumexpWithTheWrongSign,
            NoneOfLogsumexp,
            LastStretchDropped,
            FirstStretchTwice,
            LastBlockDropped,
            SinksForgotten,
            SinksWithTheWrongSign,
            BiasAfterTheSlope,
            BiasOfTheFirstOfAGroup,
            HiddenTimesZero,
            EmptyRowsAreMeans,
        )
    },
    "upper left for lower right": with_parts(upper_left),
    "window off by one": with_parts(narrower),
}


def test_what_the_mutants_are_made_from_passes() -> None:
    assert not is_caught(by_formula, gradient_cases(torch.float32)[::3])


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name: str) -> None:
    assert is_caught(partial(by_formula, kind=MUTANTS[name]), gradient_cases(torch.float32))


# --- dropout

DROPPED = {"dropout": 0.3, "mask": Causal()}


class NoFactorInGradients(Formula):
    @property
    def of_weights(self) -> Tensor:
        return self.shown(self.upstream @ self.value.mT)


class NoFactorInValues(Formula):
    @property
    def dropped(self) -> Tensor:
        return self.softmax[0]


class NoGrowth(Formula):
    def __init__(self, case: Case, upstream: Upstream, dtype: torch.dtype, factors: Tensor | None) -> None:
        assert factors is not None
        super().__init__(case, upstream, dtype, factors * 0.7)


class FactorsOfOtherRows(Formula):
    def __init__(self, case: Case, upstream: Upstream, dtype: torch.dtype, factors: Tensor | None) -> None:
        assert factors is not None
        super().__init__(case, upstream, dtype, factors.roll(1, 2))


@pytest.mark.parametrize(
    "mutant",
    [NoFactorInGradients, NoFactorInValues, NoGrowth, FactorsOfOtherRows],
    ids=lambda mutant: mutant.__name__,
)
def test_a_fault_in_dropout_is_caught(mutant: type[Formula]) -> None:
    case = Case("dropout", *tensors("randn", seq_len=29, kv_len=STRETCH + 3), DROPPED)
    assert call_of(case).dropout
    cases = [(case, upstream_of(case))]
    assert not is_caught(by_formula, cases)
    assert is_caught(partial(by_formula, kind=mutant), cases)
