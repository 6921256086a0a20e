"""A class or a factory is made by the names of its parameters, with sizes that tell the most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention
from transformers.models.llama.modeling_llama import LlamaAttention

from headwise.errors import ArgumentError
from headwise.verbs.check.asking import Form
from headwise.verbs.check.subject import Examined

from .asking_it import right_readings, subject
from .modules import attend, heads


class Grouped(nn.Module):
    def __init__(
        self, hidden_size: int, n_heads: int, n_kv_heads: int, head_dim: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.n_heads, self.n_kv_heads, self.p = n_heads, n_kv_heads, dropout
        self.wq, self.wo = (
            nn.Linear(hidden_size, n_heads * head_dim),
            nn.Linear(n_heads * head_dim, hidden_size),
        )
        self.wk, self.wv = (nn.Linear(hidden_size, n_kv_heads * head_dim) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        key, value = (heads(layer(x), self.n_kv_heads) for layer in (self.wk, self.wv))
        return self.wo(attend(heads(self.wq(x), self.n_heads), key, value))


class Plain(nn.Module):
    def __init__(
        self, d_model: int = 512, nhead: int = 8, attn_pdrop: float = 0.0, is_causal: bool = True
    ) -> None:
        super().__init__()
        if d_model % nhead:
            raise ValueError("nhead must divide d_model")
        self.made_with = (d_model, nhead, attn_pdrop, is_causal)
        self.h = nhead
        self.qkv, self.proj = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        nn.init.zeros_(self.qkv.bias)
        nn.init.zeros_(self.proj.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(attend(*(heads(each, self.h) for each in self.qkv(x).chunk(3, -1))))


class Rotating(Plain):
    """Half of each head turns."""

    def __init__(self, d_model: int, nhead: int) -> None:
        if d_model // nhead % 2:
            raise AssertionError("rotary positions need an even head_dim")
        super().__init__(d_model, nhead)


class OneHead(nn.Module):
    def __init__(self, n_embd: int, head_size: int, block_size: int) -> None:
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(n_embd, head_size, bias=False) for _ in range(3))
        self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)))

    def forward(self, x: Tensor) -> Tensor:
        return attend(*(layer(x)[:, None] for layer in (self.query, self.key, self.value)))


@dataclass
class Config:
    n_embd: int = 768
    n_head: int = 12
    bias: bool = True
    block_size: int = 1024


class FromConfig(Plain):
    def __init__(self, config: Config) -> None:
        super().__init__(config.n_embd, config.n_head)
        assert isinstance(config, Config)


class FromAnything(Plain):
    def __init__(self, cfg, layer_idx) -> None:  # type: ignore[no-untyped-def]  # a user's
        super().__init__(cfg["emb_dim"], cfg.get("n_heads", 1))
        assert "n_heads" in cfg
        assert not hasattr(cfg, "frobs")
        assert cfg.get("frobs", 3) == 3


def sizes(found: Examined) -> tuple[int, ...]:
    told = found.sizes
    return told.num_heads, told.num_kv_heads, told.head_dim, told.value_head_dim, told.d_model


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Grouped, (6, 2, 7, 7, 40)),
        (Plain, (6, 6, 7, 7, 42)),
        (Rotating, (6, 6, 10, 10, 60)),
        (FromConfig, (6, 6, 7, 7, 42)),
        (FromAnything, (6, 6, 7, 7, 42)),
        (OneHead, (1, 1, 7, 7, 40)),
        (LlamaAttention, (6, 2, 10, 10, 60)),
    ],
)
def test_classes_are_made_with_the_most_telling_sizes_they_take(kind: Any, expected: tuple[int, ...]) -> None:
    found = subject(kind)
    assert (found.form, found.name) == (Form.PROJECTED, kind.__name__)
    assert sizes(found) == expected
    assert right_readings(found) == [0]


def test_torch_s_own_class() -> None:
    found = subject(nn.MultiheadAttention)
    assert (sizes(found), found.axes) == ((6, 6, 7, 7, 42), "qbd")
    assert right_readings(found, axes="qbd") == [0]
    # Its biases begin at 0, where nothing that is done to them would show.
    assert found.projections()[0].query.bias.abs().min() > 0


def test_declared_sizes_and_options_are_what_it_is_made_with() -> None:
    made: list[tuple[Any, ...]] = []

    class Watched(Plain):
        def __init__(
            self, d_model: int, nhead: int, is_causal: bool = False, dropout: float = 0.0, window: int = 3
        ) -> None:
            super().__init__(d_model, nhead)
            made.append((d_model, nhead, is_causal, dropout, window))

    found = subject(Watched, num_heads=4, d_model=20, causal=True, window=5)
    assert sizes(found) == (4, 4, 5, 5, 20)
    assert made == [(20, 4, True, 0.25, 5)]


def test_constant_weights_are_drawn_anew_and_the_same_each_time() -> None:
    first, second = (subject(Plain).projections()[0] for _ in range(2))
    assert torch.equal(first.query.weight, second.query.weight)
    assert first.query.bias.std() > 0.1
    assert first.output.weight.std() > 0.1


def test_making_draws_from_no_state_of_the_caller_s() -> None:
    torch.manual_seed(9)
    before = torch.get_rng_state()
    subject(Plain)
    assert torch.equal(torch.get_rng_state(), before)


def test_factories() -> None:
    def make() -> nn.Module:
        return Plain(20, 4)

    def make_wide(d_model: int, num_heads: int) -> nn.Module:
        return Plain(d_model, num_heads)

    assert sizes(subject(make)) == (4, 4, 5, 5, 20)
    assert sizes(subject(lambda: Grouped(23, 6, 3, 5))) == (6, 3, 5, 5, 23)
    assert sizes(subject(make_wide)) == (6, 6, 7, 7, 42)
    assert subject(lambda: attend_heads).form is Form.HEADS


def attend_heads(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return torch.softmax(query @ key.mT / query.shape[-1] ** 0.5, -1) @ value


def test_arguments_give_what_is_not_known() -> None:
    class Odd(Plain):
        def __init__(self, d_model: int, nhead: int, frobs: int) -> None:
            super().__init__(d_model, nhead)
            self.frobs = frobs

        def forward(self, x: Tensor, knob: Any) -> Tensor:
            assert (self.frobs, knob) == (3, 4)
            return super().forward(x)

    with pytest.raises(
        ArgumentError, match=r"Odd is made with frobs, for which check knows no value; pass an inst"
    ):
        subject(Odd)
    assert sizes(subject(Odd, arguments={"frobs": 3, "knob": 4})) == (6, 6, 7, 7, 42)


def test_what_cannot_be_made() -> None:
    class Never(nn.Module):
        def __init__(self, d_model: int) -> None:
            raise NotImplementedError("not yet")

    def number() -> int:
        return 3

    with pytest.raises(
        ArgumentError,
        match=r"Never\(d_model=\d+\) raised NotImplementedError: not yet at .*test_building.py:\d+ .*factory",
    ):
        subject(Never)
    with pytest.raises(ArgumentError, match=r"number made a int, which is no attention to be called"):
        subject(number)
    with pytest.raises(
        ArgumentError, match=r"knows no value for the setting 'scale_attn_weights'; pass an instance"
    ):
        subject(GPT2Attention)
    with pytest.raises(ArgumentError, match=r"Plain: the sizes that are given do not fit together"):
        subject(Plain, num_heads=4, num_kv_heads=2)
