"""Functions that are given the weights as arguments, in whatever order of axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from headwise.errors import ArgumentError
from headwise.verbs.check.asking import Form

from .asking_it import right_readings, subject
from .test_forms import of_width, plain, two_axes

WEIGHTS: dict[str, Callable[..., Any]] = {
    "x @ w": lambda x, w_q, w_k, w_v, w_o, num_heads: of_width(x @ w_q, x @ w_k, x @ w_v, num_heads) @ w_o,
    "linear": lambda x, Wq, Wk, Wv, Wo, n_heads: functional.linear(  # noqa: N803  # as people write them
        of_width(functional.linear(x, Wq), functional.linear(x, Wk), functional.linear(x, Wv), n_heads), Wo
    ),
    "fused": lambda x, w_qkv, b_qkv, w_o, b_o, num_heads: functional.linear(
        of_width(*functional.linear(x, w_qkv, b_qkv).chunk(3, -1), num_heads), w_o, b_o
    ),
    "no output": lambda x, w_q, w_k, w_v, num_heads: of_width(x @ w_q, x @ w_k, x @ w_v, num_heads),
    "by head": lambda x, w_q, w_k, w_v, w_o: torch.einsum(
        "bhqe,hed->bqd", plain(*(torch.einsum("bsd,hde->bhse", x, w) for w in (w_q, w_k, w_v))), w_o
    ),
    "a text at a time": lambda x, w_q, w_k, w_v, w_o, num_heads: (
        torch.cat(
            [
                two_axes(*parts)
                for parts in zip(*((x @ w).chunk(num_heads, 1) for w in (w_q, w_k, w_v)), strict=True)
            ],
            1,
        )
        @ w_o
    ),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_functions_that_are_given_the_weights(name: str) -> None:
    found = subject(WEIGHTS[name])
    assert found.form is Form.PROJECTED
    assert right_readings(found) != []
    if name in {"x @ w", "no output"}:
        # What is not square is handed over in the order that fits, and says so.
        assert len(found.projections()) == 1
        assert found.sizes.d_model != found.sizes.num_heads * found.sizes.head_dim


def test_weights_that_are_not_those_of_query_key_and_value() -> None:
    def short(x: Tensor, w_q: Tensor, w_k: Tensor) -> Tensor:
        return plain(x @ w_q, x @ w_k, x)

    with pytest.raises(
        ArgumentError, match=r"short takes weights, query, key; they must be of query, key and value"
    ):
        subject(short)
