"""What a callable is given: heads, rows of full width, or rows to project; what is open is tried."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from headwise.errors import ArgumentError, SubjectError
from headwise.verbs.check.asking import Form, Role

from .asking_it import attended, inputs_for, of_rows, right_readings, subject
from .modules import attend, heads


def plain(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value


def grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    group = q.shape[1] // k.shape[1]
    return plain(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1))


def tokens_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return grouped(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2)


def two_axes(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.mm(q, k.T) / math.sqrt(q.shape[1])
    return torch.mm(scores.softmax(1), v)


def three_axes(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.bmm(torch.softmax(torch.bmm(q, k.mT) / math.sqrt(q.shape[-1]), -1), v)


def same_width(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return plain(q, k, v).reshape(q.shape)


def even_width(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    one, two = q[..., ::2], q[..., 1::2]
    return plain(torch.stack((one + 0 * two, two), dim=-1).flatten(-2), k, v)


def square_mask(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    tokens = q.shape[2]
    return grouped(q, k * torch.ones(tokens, 1), v)


def of_width(query: Tensor, key: Tensor, value: Tensor, num_heads: int) -> Tensor:
    return attend(*(heads(each, num_heads) for each in (query, key, value)))


def of_grouped_width(query: Tensor, key: Tensor, value: Tensor, num_heads: int, num_kv_heads: int) -> Tensor:
    return attend(heads(query, num_heads), heads(key, num_kv_heads), heads(value, num_kv_heads))


def of_three_heads(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    batch, tokens, _ = query.shape
    return of_width(query, key, value, 3).view(batch, tokens, -1)


def into_arrays(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    scores = np.matmul(q, k.swapaxes(-1, -2)) / np.sqrt(q.shape[-1])
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.matmul(scores / scores.sum(axis=-1, keepdims=True), v).astype(np.float32, copy=False)


OF_HEADS: dict[str, tuple[Callable[..., Any], tuple[int, int, int, int], str, bool]] = {
    # sizes: heads, KV heads, widths of a key and of a value; the axes; whether lengths may differ
    "plain": (plain, (6, 6, 7, 11), "bhqd", True),
    "grouped": (grouped, (6, 2, 7, 11), "bhqd", True),
    "tokens first": (tokens_first, (6, 2, 7, 11), "bqhd", True),
    "three axes": (three_axes, (6, 6, 7, 11), "bhqd", True),
    "same width": (same_width, (6, 6, 7, 7), "bhqd", True),
    "even width": (even_width, (6, 6, 10, 14), "bhqd", True),
    "square mask": (square_mask, (6, 2, 7, 11), "bhqd", False),
    "arrays": (into_arrays, (6, 6, 7, 11), "bhqd", True),
    "built in": (functional.scaled_dot_product_attention, (6, 2, 7, 11), "bhqd", True),
    "open": (lambda *args, **kwargs: plain(*args), (6, 6, 7, 11), "bhqd", True),
}


@pytest.mark.parametrize("name", OF_HEADS)
def test_functions_of_heads(name: str) -> None:
    function, sizes, axes, differ = OF_HEADS[name]
    found = subject(function)
    assert found.form is Form.HEADS
    told = found.sizes
    assert (told.num_heads, told.num_kv_heads, told.head_dim, told.value_head_dim) == sizes
    assert found.lengths_may_differ is differ
    assert {Role.QUERY, Role.KEY, Role.VALUE} <= found.takes
    inputs = inputs_for(found)
    answered = found.answer(inputs, axes=axes).output
    assert torch.allclose(answered.double(), attended(inputs, told), atol=1e-5)


def test_declared_sizes_are_the_sizes() -> None:
    sizes = subject(grouped, num_heads=8, num_kv_heads=4, head_dim=3, value_head_dim=9).sizes
    assert (sizes.num_heads, sizes.num_kv_heads, sizes.head_dim, sizes.value_head_dim) == (8, 4, 3, 9)
    assert subject(grouped, num_heads=5).sizes.num_kv_heads == 5
    assert subject(grouped, num_kv_heads=4).sizes.num_heads == 12


@pytest.mark.parametrize(
    ("function", "num_heads", "sizes"),
    [
        (of_width, None, (6, 6, 7, 11)),
        (of_grouped_width, None, (6, 2, 7, 11)),
        (of_three_heads, 3, (3, 3, 7, 11)),
    ],
)
def test_functions_of_full_width(
    function: Callable[..., Any], num_heads: int | None, sizes: tuple[int, ...]
) -> None:
    found = subject(function, num_heads=num_heads)
    told = found.sizes
    assert found.form is Form.WIDTH
    assert (told.num_heads, told.num_kv_heads, told.head_dim, told.value_head_dim) == sizes
    inputs = inputs_for(found)
    answered = found.answer(inputs, axes="bqd").output
    assert torch.allclose(answered.double(), of_rows(inputs, told, None), atol=1e-5)
    assert found.projections() == ()


def test_a_function_that_splits_rows_into_heads_it_does_not_tell_needs_num_heads() -> None:
    with pytest.raises(SubjectError, match=r"It was handed heads.*pass num_heads="):
        subject(of_three_heads)


def test_rows_with_the_tokens_first() -> None:
    def transposing(query: Tensor, key: Tensor, value: Tensor, num_heads: int) -> Tensor:
        return of_width(*(each.transpose(0, 1) for each in (query, key, value)), num_heads).transpose(0, 1)

    found = subject(transposing)
    inputs = inputs_for(found)
    right = of_rows(inputs, found.sizes, None)
    assert torch.allclose(found.answer(inputs, axes="qbd").output.double(), right, atol=1e-5)


def test_keys_that_may_be_left_out_and_do_nothing_are_none() -> None:
    class Optional(nn.Module):
        def __init__(self, *, crosses: bool) -> None:
            super().__init__()
            self.num_heads, self.crosses = 3, crosses
            self.qkv = nn.Linear(12, 36)

        def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
            rows = context if self.crosses and context is not None else x
            query, key, value = (
                functional.linear(r, w, b)
                for r, w, b in zip(
                    (x, rows, rows), self.qkv.weight.chunk(3), self.qkv.bias.chunk(3), strict=True
                )
            )
            return of_width(query, key, value, 3)

    alone, crossing = subject(Optional(crosses=False)), subject(Optional(crosses=True))
    assert Role.KEY not in alone.takes
    assert not alone.lengths_may_differ
    assert Role.KEY in crossing.takes
    assert Role.VALUE not in crossing.takes
    assert crossing.lengths_may_differ
    assert right_readings(alone) == right_readings(crossing) == [0]


def test_keys_that_raise_where_they_may_be_left_out_are_none() -> None:
    def attends(x: Tensor, memory: Tensor | None = None, num_heads: int = 1) -> Tensor:
        if memory is not None:
            raise NotImplementedError("no cross attention")
        return of_width(x, x, x, num_heads)

    assert Role.KEY not in subject(attends).takes


def test_a_module_without_weights_is_asked_as_a_function_is() -> None:
    class Formula(nn.Module):
        def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return plain(query, key, value)

    found = subject(Formula())
    assert (found.form, found.is_module, found.name) == (Form.HEADS, True, "Formula")


def test_one_head_of_two_axes() -> None:
    found = subject(two_axes)
    sizes = found.sizes
    assert (found.form, sizes.num_heads, sizes.head_dim, sizes.value_head_dim) == (Form.WIDTH, 1, 7, 11)
    inputs = inputs_for(found)
    answered = found.answer(inputs, axes="bqd").output.double()
    assert torch.allclose(answered, of_rows(inputs, sizes, None), atol=1e-5)


def test_rows_that_are_split_need_the_number_of_heads() -> None:
    with pytest.raises(
        ArgumentError, match=r"plain does not tell how many heads it splits rows into; pass num"
    ):
        subject(plain, axes="bqd")


def test_declared_axes_decide_between_heads_and_rows() -> None:
    assert subject(plain, axes="bhqd").form is Form.HEADS
    assert subject(plain, axes="bqd", num_heads=1).form is Form.WIDTH
    assert subject(plain, axes="bhqd").axes == "bhqd"
    assert subject(plain).axes is None


def test_a_callable_without_rows_is_refused() -> None:
    def spin(angle: float = 1.0, *, q_start: int = 0) -> float:
        return angle

    with pytest.raises(ArgumentError, match=r"made a float, which is no attention to be called"):
        subject(spin)

    class Spinner:
        def __call__(self, angle: float = 1.0) -> float:
            return angle

    with pytest.raises(
        ArgumentError, match=r"has no parameter that check takes for the query or the token rows"
    ):
        subject(Spinner())
    with pytest.raises(ArgumentError, match=r"target is a int, which cannot be called"):
        subject(3)
