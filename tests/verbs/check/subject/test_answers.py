"""What may come back: tensors, tuples, dicts, objects; and what is no answer, told with the user's line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from headwise.errors import HeadwiseError, SubjectError
from headwise.verbs.check.asking import Form

from .asking_it import inputs_for, of_rows, subject
from .modules import attend, heads
from .test_forms import plain

Returned = Callable[[Tensor, Tensor, Tensor], Any]


def weights(query: Tensor, key: Tensor) -> Tensor:
    return torch.softmax(query @ key.mT / query.shape[-1] ** 0.5, -1)


def logsumexp(query: Tensor, key: Tensor) -> Tensor:
    return torch.logsumexp(query @ key.mT / query.shape[-1] ** 0.5, -1)


RETURNED: dict[str, tuple[Returned, bool, bool]] = {
    # whether weights come back, and a logsumexp
    "a tensor": (plain, False, False),
    "output and weights": (lambda q, k, v: (plain(q, k, v), weights(q, k)), True, False),
    "weights first": (lambda q, k, v: (weights(q, k), plain(q, k, v)), True, False),
    "mean weights": (lambda q, k, v: (plain(q, k, v), weights(q, k).mean(1)), True, False),
    "a list with None": (lambda q, k, v: [plain(q, k, v), None, weights(q, k)], True, False),
    "logsumexp": (lambda q, k, v: (plain(q, k, v), logsumexp(q, k)), False, True),
    "a dict": (lambda q, k, v: {"attn": weights(q, k), "out": plain(q, k, v)}, True, False),
    "an output object": (
        lambda q, k, v: BaseModelOutput(last_hidden_state=plain(q, k, v), attentions=(weights(q, k),)),
        False,
        False,
    ),
    "tokens first": (lambda q, k, v: plain(q, k, v).transpose(1, 2), False, False),
    "joined heads": (lambda q, k, v: plain(q, k, v).transpose(1, 2).flatten(2), False, False),
    "an array": (lambda q, k, v: plain(q, k, v).numpy(), False, False),
}


@pytest.mark.parametrize("name", RETURNED)
def test_what_comes_back_is_understood(name: str) -> None:
    function, has_weights, has_logsumexp = RETURNED[name]
    found = subject(function)
    inputs = inputs_for(found)
    answer = found.answer(inputs, axes="bhqd")
    assert torch.allclose(answer.output, plain(inputs.query, inputs.key, inputs.value), atol=1e-6)
    assert (answer.weights is not None) is has_weights
    assert (answer.logsumexp is not None) is has_logsumexp
    if has_weights:
        right = weights(inputs.query, inputs.key)
        assert torch.allclose(answer.weights, right if answer.weights.dim() == 4 else right.mean(1))


@dataclass
class Outputs:
    hidden: Tensor
    probs: Tensor


def test_a_dataclass_is_understood() -> None:
    found = subject(lambda q, k, v: Outputs(plain(q, k, v), weights(q, k)))
    assert found.answer(inputs_for(found), axes="bhqd").weights is not None


def raises(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    if key.shape[2] > 0:
        raise ZeroDivisionError("a line\nof two")  # the line
    return query


def helps(query: Tensor, key: Tensor) -> Tensor:
    return torch.matmul(query, key)  # the deep line


def raises_deep(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return helps(query, key)


def line_of(function: Callable[..., Any], text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(number for number, line in enumerate(lines) if text in line)


def test_what_is_raised_is_told_with_the_line_and_what_was_asked() -> None:
    with pytest.raises(SubjectError) as told:
        subject(raises)
    place = f"test_answers.py:{line_of(raises, '# the line')} (raise ZeroDivisionError"
    assert str(told.value).startswith("raises raised ZeroDivisionError: a line of two at ")
    assert place in str(told.value)
    assert "it was asked with query=float32 [3, 6, 5, 64], key=float32 [3, 6, 5, 64], value=" in str(
        told.value
    )
    assert isinstance(told.value, HeadwiseError)


def test_the_line_is_the_user_s_own_however_deep_it_was_raised() -> None:
    with pytest.raises(SubjectError, match=r"raises_deep raised RuntimeError") as told:
        subject(raises_deep)
    assert f"test_answers.py:{line_of(helps, '# the deep line')}" in str(told.value)


def test_where_no_line_of_the_user_s_was_reached_it_is_told_where_it_is_written() -> None:
    def takes_two(query: Tensor, *, key: Tensor) -> Tensor:
        return query

    def wrapped(*args: Any) -> Tensor:
        return query_only(*args)

    query_only = takes_two
    with pytest.raises(
        SubjectError, match=r"wrapped raised TypeError: .*test_answers.py:\d+ \(return query_only"
    ):
        subject(wrapped)
    with pytest.raises(
        SubjectError, match=r"silent raised TypeError: .* \(silent is written at .*test_answers.py:\d+\)"
    ):
        subject(silent)


def silent(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return query


silent.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # it tells of one that is not there
    [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in ("q", "k", "v")]
)

WRONG: dict[str, tuple[Returned, str]] = {
    "None": (lambda q, k, v: None, r"returned None, no tensor; it was asked with q=float32"),
    "a number": (lambda q, k, v: 3.5, r"returned float 3.5, no tensor"),
    "nothing in a tuple": (lambda q, k, v: (), r"returned a tuple of nothing, no tensor"),
    "another shape": (
        lambda q, k, v: plain(q, k, v).sum(-1),
        r"returned a tensor \[3, 6, 5\]; the output must have the shape \[3, 6, 5, 64\] or \[3, 5, 6, 64\]",
    ),
    "a tuple of other shapes": (
        lambda q, k, v: (q.sum(), {"k": k.sum()}),
        r"returned a tuple of a tensor \[\], a dict of k: a tensor \[\]; the output must have the shape",
    ),
    "an array of another shape": (
        lambda q, k, v: np.zeros((2, 2)),
        r"returned an array \[2, 2\]; the output must",
    ),
    "integers": (
        lambda q, k, v: plain(q, k, v).long(),
        r"returned numbers of torch.int64; the output must be floating-point",
    ),
    "complex numbers": (lambda q, k, v: plain(q, k, v) + 0j, r"returned numbers of torch.complex64"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_answer(name: str) -> None:
    function, message = WRONG[name]
    with pytest.raises(SubjectError, match=message):
        subject(function)


def test_nan_is_an_answer() -> None:
    found = subject(lambda q, k, v: plain(q, k, v) * torch.nan)
    assert found.answer(inputs_for(found), axes="bhqd").output.isnan().all()


def test_an_exit_ends_no_process() -> None:
    def leaves(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        raise SystemExit(3)

    with pytest.raises(SubjectError, match=r"^leaves raised SystemExit: 3 at "):
        subject(leaves)


def test_a_module_may_leave_its_output_projection_out() -> None:
    class Forgets(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.num_heads = 3
            self.qkv, self.proj = nn.Linear(20, 3 * 21), nn.Linear(21, 20)

        def forward(self, x: Tensor) -> Tensor:
            return attend(*(heads(each, 3) for each in self.qkv(x).chunk(3, -1)))

    found = subject(Forgets())
    assert found.form is Form.PROJECTED
    inputs = inputs_for(found)
    reading = found.projections()[0]
    assert reading.output is not None
    assert found.answer(inputs, axes="bqd").output.shape == (2, 7, 21)
    assert of_rows(inputs, found.sizes, reading).shape == (2, 7, 20)
