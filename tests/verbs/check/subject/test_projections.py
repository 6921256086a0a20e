"""The weights of a module are found under whatever names, and one reading reproduces what it answers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from headwise.errors import ArgumentError

from .asking_it import right_readings, subject
from .modules import D_MODEL, FUSED_NAMES, HEAD_DIM, HEADS, KV_HEADS, NAMES, OTHERS, Bare, Fused, Named


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(3)


@pytest.mark.parametrize("names", NAMES, ids=lambda names: names[0])
def test_separate_layers_are_found_by_their_names(names: tuple[str, str, str, str]) -> None:
    found = subject(Named(names))
    assert (found.sizes.num_heads, found.sizes.num_kv_heads, found.sizes.head_dim) == (
        HEADS,
        KV_HEADS,
        HEAD_DIM,
    )
    assert [reading.fused for reading in found.projections()] == [None]
    assert right_readings(found) == [0]


def test_a_module_without_an_output_projection_has_none() -> None:
    found = subject(Named(("query", "key", "value", None)))
    assert found.projections()[0].output is None
    assert right_readings(found) == [0]


@pytest.mark.parametrize("per_head", [False, True])
@pytest.mark.parametrize("kv_heads", [1, KV_HEADS, HEADS])
@pytest.mark.parametrize("names", FUSED_NAMES, ids=lambda names: names[0])
def test_fused_rows_are_read_in_both_orders(names: tuple[str, str], kv_heads: int, per_head: bool) -> None:
    found = subject(Fused(*names, per_head=per_head, kv_heads=kv_heads))
    assert found.sizes.num_kv_heads == kv_heads
    right = [found.projections()[number].fused for number in right_readings(found)]
    # With one KV head the two orders are one, and it is there once.
    assert right == ["per head" if per_head and kv_heads > 1 else right[0]]
    assert len(found.projections()) == (1 if kv_heads == 1 else 2)


def test_the_likelier_order_of_fused_rows_comes_first() -> None:
    orders = {
        name: [reading.fused for reading in subject(Fused(name, "proj", per_head=False)).projections()]
        for name in ("qkv", "query_key_value")
    }
    assert orders == {"qkv": ["blocks", "per head"], "query_key_value": ["per head", "blocks"]}


@pytest.mark.parametrize("name", OTHERS)
def test_weights_kept_in_other_ways(name: str) -> None:
    found = subject(OTHERS[name](), num_heads=None)
    assert found.sizes.num_heads == HEADS
    assert len(right_readings(found)) == 1


def test_square_matrices_are_read_with_both_orders_of_axes_together() -> None:
    found = subject(Bare(linear=True, d_model=HEADS * HEAD_DIM))
    first, second = found.projections()
    for name in ("query", "key", "value", "output"):
        assert torch.equal(getattr(first, name).weight, getattr(second, name).weight.T)
    assert right_readings(found) == [1]


def test_heads_in_a_list_may_be_one_module_several_times() -> None:
    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value = (nn.Linear(D_MODEL, HEAD_DIM) for _ in range(3))

    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = nn.ModuleList([Head()] * HEADS)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat(
                [
                    torch.softmax(one.query(x) @ one.key(x).mT / HEAD_DIM**0.5, -1) @ one.value(x)
                    for one in self.heads
                ],
                dim=-1,
            )

    found = subject(Shared())
    assert found.sizes.num_heads == HEADS
    assert right_readings(found) == [0]


def test_the_user_says_which_weights_are_which() -> None:
    module = Named(("alpha", "beta", "gamma", "delta"), kv_heads=HEADS)
    module.extra = nn.Linear(4, 4)
    with pytest.raises(ArgumentError, match=r"Named holds alpha \[30, 23\].*Say it: weights=\{'query'"):
        subject(module)
    found = subject(
        module, weights={"query": "alpha", "key": "beta.weight", "value": "gamma", "output": "delta"}
    )
    assert right_readings(found) == [0]


def test_the_user_says_where_a_bias_is() -> None:
    class Odd(Bare):
        def __init__(self) -> None:
            super().__init__(linear=False)
            self.lift = nn.Parameter(self.b_q.detach())
            self.b_q = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.__dict__["b_q"] = self.lift.detach()
            return super().forward(x)

    told = {
        "query": "W_q",
        "query_bias": "lift",
        "key": "W_k",
        "value": "W_v",
        "output": "W_o",
        "output_bias": "b_o",
    }
    found = subject(Odd(), weights=told)
    assert right_readings(found) == [0]


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"q": "q_proj"}, r"weights has 'q'; use query, key, value, output"),
        (
            {"query": "nowhere"},
            r"weights=\{'query': 'nowhere'\}: there is no such path; there are q_proj, k_proj",
        ),
        (
            {"query_bias": "q_proj"},
            r"weights=\{'query_bias': 'q_proj'\}: there is no such path; there are none",
        ),
        ({"query": "q_proj"}, r"it took q_proj as q"),
    ],
)
def test_weights_that_are_told_wrongly(told: dict[str, str], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        subject(Named(NAMES[0]), weights=told)
