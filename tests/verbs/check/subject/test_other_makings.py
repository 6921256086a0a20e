"""Lazy layers, weights in NumPy, arguments that were filled in, caches that never come back."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from headwise.errors import SubjectError
from headwise.verbs.check.asking import Form, Role

from .asking_it import inputs_for, right_readings, subject
from .modules import attend, heads
from .test_forms import of_width


class Lazy(nn.Module):
    """As a book has it: layers that learn their input's width, heads in the batch, lengths of the texts."""

    def __init__(self, num_hiddens: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.LazyLinear(num_hiddens, bias=False) for _ in range(4))

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor | None) -> Tensor:
        assert valid_lens is None
        return self.W_o(of_width(self.W_q(queries), self.W_k(keys), self.W_v(values), self.num_heads))


class InNumPy:
    """Matrices as attributes of an object, in float64."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        draw = np.random.default_rng(3)
        self.num_heads = num_heads
        self.Wq, self.Wk, self.Wv, self.Wo = (draw.normal(size=(d_model, d_model)) / 5 for _ in range(4))

    def __call__(self, x: np.ndarray) -> np.ndarray:
        assert isinstance(x, np.ndarray)
        batch, tokens, width = x.shape
        query, key, value = (
            (x @ weight).reshape(batch, tokens, self.num_heads, -1).transpose(0, 2, 1, 3)
            for weight in (self.Wq, self.Wk, self.Wv)
        )
        scores = np.exp(query @ key.transpose(0, 1, 3, 2) / np.sqrt(query.shape[-1]))
        mixed = (scores / scores.sum(axis=-1, keepdims=True)) @ value
        return mixed.transpose(0, 2, 1, 3).reshape(batch, tokens, width) @ self.Wo


def test_lazy_layers_get_their_weights_by_a_call() -> None:
    for target, width in ((Lazy, 42), (Lazy(30, 5), 30)):
        found = subject(target)
        assert found.sizes.d_model == width
        assert right_readings(found) == [0]
    # They can take rows of another width than they make.
    assert subject(Lazy(30, 5), d_model=17).projections()[0].query.weight.shape == (30, 17)


def test_lazy_layers_whose_call_raises_are_told() -> None:
    class Raising(Lazy):
        def forward(self, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor | None) -> Tensor:
            raise OSError("no disk")

    with pytest.raises(SubjectError, match=r"Raising raised OSError: no disk at .*test_other_makings.py"):
        subject(Raising(30, 5))


@pytest.mark.parametrize("target", [InNumPy, InNumPy(20, 4)], ids=["class", "object"])
def test_weights_in_numpy(target: Any) -> None:
    found = subject(target)
    assert (found.form, found.is_module, len(found.projections())) == (Form.PROJECTED, False, 2)
    assert right_readings(found) == [0]


def test_an_object_can_hold_modules() -> None:
    class Holder:
        def __init__(self) -> None:
            self.num_heads = 4
            self.qkv = nn.Linear(20, 60)
            self.dense = torch.randn(20, 20) / 5

        def __call__(self, x: Tensor) -> Tensor:
            mixed = attend(*(heads(each, self.num_heads) for each in self.qkv(x).chunk(3, -1)))
            return mixed @ self.dense

    found = subject(Holder())
    assert found.projections()[0].output is not None
    assert right_readings(found) == [0]


def test_arguments_that_were_filled_in() -> None:
    found = subject(partial(of_width, num_heads=4))
    assert (found.name, found.form) == ("of_width", Form.WIDTH)


def test_a_cache_that_never_comes_back_is_none() -> None:
    def forgets(x: Tensor, num_heads: int, cache: Tensor | None) -> Tensor:
        assert cache is None
        return of_width(x, x, x, num_heads)

    found = subject(forgets)
    assert Role.CACHE not in found.takes
    assert found.answer(inputs_for(found), axes="bqd").cache is None
