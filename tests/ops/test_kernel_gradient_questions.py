"""Wrong questions to the kernel's backward pass, and parts of the answer left out, must be caught."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.kernels import differentiate as compiled
from headwise.kernels.geometry import STRETCH
from headwise.masks import Causal
from headwise.ops import kernel_gradient

from ..attention_cases import Case, tensors
from .gradient_formula import Upstream
from .gradient_ways import by_kernel, hold, upstream_of

KEPT: list[Tensor] = []
"""Memory that altered questions point to."""
DIFFERENTIATE = compiled.differentiate
SEQ_LEN, KV_LEN = 35, STRETCH + 37

Alter = Callable[[Any, Any], tuple[Any, Any]]


def asked() -> tuple[Case, Upstream]:
    made = tensors("randn", seq_len=SEQ_LEN, kv_len=KV_LEN)
    options = {
        "bias": torch.randn(1, 6, 1, KV_LEN),
        "sinks": torch.randn(6),
        "softcap": 2.0,
        "mask": Causal(),
    }
    case = Case("a question", *made, options)
    return case, upstream_of(case)


def of_operands(**fields: Any) -> Alter:
    return lambda operands, gradients: (operands._replace(**fields), gradients)


def of_gradients(**fields: Any) -> Alter:
    return lambda operands, gradients: (operands, gradients._replace(**fields))


def rows(number: float) -> int:
    KEPT.append(torch.full((2, 6, SEQ_LEN), number))
    return KEPT[-1].data_ptr()


def no_output() -> int:
    KEPT.append(torch.zeros(2, 6, SEQ_LEN, 11))
    return KEPT[-1].data_ptr()


def all_heads_into_one(operands: Any, gradients: Any) -> tuple[Any, Any]:
    batch, _, row, step = gradients.bias_strides
    return operands, gradients._replace(bias_strides=(batch, 0, row, step))


QUESTIONS: dict[str, Alter] = {
    "another scale": of_operands(scale=0.2),
    "another softcap": of_operands(softcap=2.1),
    "no softcap": of_operands(softcap=0.0),
    "no bias": of_operands(bias=None, shifts=0),
    "sums of one": of_operands(sums=rows(1.0)),
    "maxima of nothing": of_operands(maxima=rows(0.0)),
    "shifts of nothing": of_operands(shifts=rows(0.0)),
    "an output of zeros": of_gradients(output=no_output()),
    "nothing of logsumexp": of_gradients(has_upstream_of_logsumexp=False),
    "all heads into one bias": all_heads_into_one,
    "no gradient of the bias": of_gradients(has_bias=False),
    "no sinks": of_gradients(has_sinks=False),
    "no query": of_gradients(has_query=False),
    "no key": of_gradients(has_key=False),
    "no value": of_gradients(has_value=False),
}


@pytest.fixture(autouse=True)
def poisoned_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernel does not write is NaN, and never right because it was right before."""
    empty_like, own_empty_like = torch.empty_like, kernel_gradient._empty_like
    monkeypatch.setattr(torch, "empty_like", lambda tensor: empty_like(tensor).fill_(torch.nan))
    monkeypatch.setattr(
        kernel_gradient, "_empty_like", lambda tensor: own_empty_like(tensor).fill_(torch.nan)
    )


def altered(alter: Alter, sizes: Any, operands: Any, gradients: Any, *, num_threads: int) -> None:
    DIFFERENTIATE(sizes, *alter(operands, gradients), num_threads=num_threads)


def test_the_right_question_passes() -> None:
    hold(*asked())


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_wrong_question_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "differentiate", partial(altered, QUESTIONS[name]))
    with pytest.raises(AssertionError, match="a question"):
        hold(*asked(), differentiate=by_kernel)
