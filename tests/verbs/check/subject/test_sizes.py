"""Sizes: from the caller, from attributes and from the weights, which must agree."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from torch import Tensor, nn

from headwise.errors import ArgumentError

from .asking_it import right_readings, subject
from .modules import D_MODEL, HEAD_DIM, HEADS, KV_HEADS, NAMES, Fused, KeyAndValueFused, Named, attend, heads


class Silent(nn.Module):
    """It says nothing of its sizes, but what `more` says."""

    def __init__(self, rows: int = 30, kv_rows: int = 10, *, output: bool = True, **more: Any) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (
            nn.Linear(D_MODEL, rows),
            nn.Linear(D_MODEL, kv_rows),
            nn.Linear(D_MODEL, kv_rows),
        )
        self.o_proj = nn.Linear(rows, D_MODEL) if output else None
        vars(self).update(more)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            heads(layer(x), layer.out_features // HEAD_DIM)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        return self.o_proj(attend(query, key, value))


@pytest.mark.parametrize(
    "more",
    [
        {"num_heads": 6},
        {"n_head": 6},
        {"h": 6},
        {"head_dim": 5},
        {"attention_head_size": 5},
        {"config": SimpleNamespace(num_attention_heads=6, hidden_size=D_MODEL)},
        {"args": SimpleNamespace(n_heads=6, dim=D_MODEL)},
        {"num_heads": 6, "n_rep": 3},
        {"num_heads": 6, "num_key_value_heads": 2, "embed_dim": 999},
        {"num_heads": 6, "heads": True, "n_heads": None},
    ],
    ids=str,
)
def test_attributes_tell_sizes(more: dict[str, Any]) -> None:
    found = subject(Silent(**more))
    sizes = found.sizes
    assert (sizes.num_heads, sizes.num_kv_heads, sizes.head_dim, sizes.d_model) == (
        HEADS,
        KV_HEADS,
        HEAD_DIM,
        D_MODEL,
    )
    assert right_readings(found) == [0]


def test_the_sizes_of_a_part_are_not_those_of_the_whole() -> None:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dim = 8

    class Formula(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.num_heads, self.positions = 3, Positions()

        def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return attend(query, key, value)

    sizes = subject(Formula()).sizes
    assert (sizes.num_heads, sizes.head_dim) == (3, 7)


def test_the_caller_tells_sizes() -> None:
    assert subject(Silent(), num_heads=6).sizes.num_kv_heads == KV_HEADS
    assert subject(Silent(), head_dim=5, d_model=D_MODEL).sizes.num_heads == HEADS


def test_values_of_another_width_show_in_the_output_projection() -> None:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.num_heads = HEADS
            self.qkv, self.proj = nn.Linear(D_MODEL, 2 * 30 + HEADS * 7), nn.Linear(HEADS * 7, D_MODEL)

        def forward(self, x: Tensor) -> Tensor:
            query, key, value = self.qkv(x).split([30, 30, HEADS * 7], dim=-1)
            return self.proj(attend(heads(query, HEADS), heads(key, HEADS), heads(value, HEADS)))

    found = subject(Wide(), head_dim=HEAD_DIM)
    assert (found.sizes.head_dim, found.sizes.value_head_dim) == (HEAD_DIM, 7)
    assert right_readings(found) == [0]


def test_fused_widths_without_an_output_projection() -> None:
    class Bare(Fused):
        def __init__(self, kv_heads: int) -> None:
            super().__init__("qkv", "proj", per_head=False, kv_heads=kv_heads)
            self.proj = nn.Identity()

    assert subject(Bare(HEADS)).sizes.head_dim == HEAD_DIM
    assert subject(Bare(KV_HEADS), num_kv_heads=KV_HEADS).sizes.head_dim == HEAD_DIM
    assert subject(Bare(KV_HEADS), head_dim=HEAD_DIM).sizes.num_kv_heads == KV_HEADS


def test_key_and_value_of_another_input() -> None:
    found = subject(KeyAndValueFused())
    assert found.projections()[0].key.weight.shape == (30, 17)
    assert found.sizes.num_kv_heads == HEADS


REFUSED: dict[str, tuple[nn.Module, dict[str, int], str]] = {
    "no heads told": (Silent(), {}, r"Silent does not tell how many heads it has; pass num_heads="),
    "another count than the attribute": (
        Named(NAMES[0]),
        {"num_heads": 3},
        r"num_heads=3 is given, and Named has num_heads=6; leave num_heads out",
    ),
    "a setting": (
        Silent(config=SimpleNamespace(n_head=6)),
        {"num_heads": 3},
        r"num_heads=3 is given, and Silent has config.n_head=6",
    ),
    "a count that does not divide": (
        Silent(),
        {"num_heads": 7},
        r"Silent: num_heads=7 does not divide its 30 query rows \(q 30 wide, k 10 wide, v 10 wide, heads",
    ),
    "another width": (
        Silent(),
        {"num_heads": 6, "head_dim": 4},
        r"Silent: head_dim=4, but its weights .* for 6 heads\) have head_dim=5; pass what they have",
    ),
    "another KV count": (
        Silent(num_heads=6),
        {"num_kv_heads": 3},
        r"Silent: num_kv_heads=3, but its weights .* have num_kv_heads=2",
    ),
    "another width of the model": (
        Silent(num_heads=6),
        {"d_model": 24},
        r"Silent: d_model=24, but its weights .* have d_model=23",
    ),
    "an attribute that contradicts the weights": (
        Silent(num_heads=6, head_dim=4),
        {},
        r"Silent: head_dim=4, but its weights .* have head_dim=5",
    ),
    "a group that contradicts the weights": (
        Silent(num_heads=6, n_rep=2),
        {},
        r"Silent: n_rep=2, but its weights .* have num_kv_heads=2",
    ),
    "KV heads that do not divide": (
        Silent(kv_rows=20),
        {"num_heads": 6},
        r"have 4 KV heads, which do not divide 6 heads",
    ),
    "an output projection of another width": (
        Silent(num_heads=6, o_proj=nn.Linear(18, D_MODEL)),
        {},
        r"6 heads with values 5 wide join to 30, and its output projection takes 18",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_sizes_that_contradict_each_other(name: str) -> None:
    module, declared, message = REFUSED[name]
    if name.startswith("an output"):
        module.register_module("o_proj", vars(module).pop("o_proj"))
    with pytest.raises(ArgumentError, match=message):
        subject(module, **declared)


def test_a_module_that_holds_what_is_no_projection_is_told() -> None:
    class Blocks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(5))

        def forward(self, x: Tensor) -> Tensor:
            return x

    with pytest.raises(ArgumentError, match=r"Blocks holds layers.0 \[4, 4\], .* does not see which of them"):
        subject(Blocks())
