"""Gradients of sinks over many draws: within what rounding can do, and far less than what a fault does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.kernels.geometry import STRETCH
from headwise.masks import Causal, Lengths, Window

from ..attention_cases import KINDS, Case, tensors
from .gradient_formula import Formula, Upstream
from .gradient_ways import by_formula, by_kernel, hold_sinks, upstream_of
from .test_kernel_gradient_mutants import NoneOfLogsumexp, NoRowSums, RowSumsAreMeans, SinksWithTheWrongSign

SEQ_LEN, KV_LEN = 29, STRETCH + 3
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
DRAWS = 67
"""For each dtype, so 201 in all."""


class LastRowDropped(Formula):
    @property
    def of_sinks(self) -> Tensor:
        return super().of_sinks + (self.softmax[1] * self.lowered_by)[..., -1]


class RowSumsOfEightBits(Formula):
    @property
    def lowered_by(self) -> Tensor:
        return super().lowered_by.bfloat16().to(self.query.dtype)


MUTANTS = (
    SinksWithTheWrongSign,
    NoRowSums,
    RowSumsAreMeans,
    NoneOfLogsumexp,
    LastRowDropped,
    RowSumsOfEightBits,
)


def drawn(dtype: torch.dtype) -> Iterator[tuple[Case, Upstream]]:
    """Yield one problem after the other, options, masks and kinds of input taking turns."""
    for draw in range(DRAWS):
        torch.manual_seed(1000 * DTYPES.index(dtype) + draw)
        made = tensors(KINDS[draw % 3], seq_len=SEQ_LEN, kv_len=KV_LEN, dtype=dtype, seed=draw)
        options: dict[str, Any] = {"sinks": torch.randn(6) * (1.0, 4.0)[draw % 2]}
        options["mask"] = (None, Causal(), Window(left=40, right=20), Lengths([90, KV_LEN]))[draw % 4]
        more: dict[str, Any] = (
            {},
            {"bias": 2 * torch.randn(1, 6, 1, KV_LEN)},
            {"softcap": 1.5},
            {"dropout": 0.2},
            {"scale": 0.7},
        )[draw % 5]
        case = Case(f"draw {draw}, {dtype}", *made, options | more)
        yield case, upstream_of(case, logsumexp=draw % 7 > 0, seed=draw)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rounding_stays_within_its_bound(dtype: torch.dtype) -> None:
    for case, upstream in drawn(dtype):
        exact = by_formula(case, upstream, dtype=torch.float64)
        hold_sinks(case, upstream, by_kernel(case, upstream).sinks, exact.sinks)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_every_fault_is_beyond_it(mutant: type[Formula]) -> None:
    for case, upstream in drawn(torch.float32):
        if mutant is NoneOfLogsumexp and upstream.logsumexp is None:
            continue  # there it is right
        exact = by_formula(case, upstream, dtype=torch.float64)
        wrong = by_formula(case, upstream, dtype=torch.float64, kind=mutant)
        with pytest.raises(AssertionError, match=r"gradient of sinks, draw .* is off by"):
            hold_sinks(case, upstream, wrong.sinks, exact.sinks)
