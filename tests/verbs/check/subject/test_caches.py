"""A cache goes back as it came, however it is made; a call that asks for one and has none starts one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import GPTNeoXConfig, LlamaConfig
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXAttention
from transformers.models.llama.modeling_llama import LlamaAttention

import headwise as hw
from headwise.rope import Rope
from headwise.verbs.check.asking import Inputs, Role
from headwise.verbs.check.subject import Examined

from .asking_it import inputs_for, subject
from .modules import heads


class Cached(nn.Module):
    """Causal, with a cache that it returns in some way."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.num_heads, self.kind = 3, kind
        self.qkv, self.proj = nn.Linear(20, 3 * 21), nn.Linear(21, 20)

    def forward(self, x: Tensor, cache: Any = None, use_cache: bool = False) -> Any:
        query, key, value = (heads(each, 3) for each in self.qkv(x).chunk(3, -1))
        if cache is not None:
            past = (cache["k"], cache["v"]) if self.kind == "dict" else cache
            key, value = (torch.cat(pair, dim=2) for pair in zip(past, (key, value), strict=True))
        scores = query @ key.mT / 7**0.5
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(key.shape[2] - query.shape[2] + 1)
        output = self.proj(
            (scores.masked_fill(hidden, -torch.inf).softmax(-1) @ value).transpose(1, 2).flatten(2)
        )
        if self.kind == "asked for":
            return (output, (key, value)) if use_cache else output
        return {
            "pair": (output, (key, value)),
            "dict": (output, {"k": key, "v": value}),
            "flat": (output, key, value),
            "named": {"past": (key, value), "hidden": output},
        }[self.kind]


class OneText(Cached):
    """The same for a text without a batch axis."""

    def forward(self, x: Tensor, cache: Any = None, use_cache: bool = False) -> Any:
        if x.dim() != 2:
            raise ValueError("one text at a time")
        output, kept = super().forward(x[None], cache, use_cache)
        return output[0], kept


def in_steps(found: Examined, inputs: Inputs, *parts: int) -> Tensor:
    """The answer to some tokens, then to the next, each call given the cache of the one before."""
    kept, outputs, start = None, [], 0
    for part in parts:
        rows = inputs.query[:, start : start + part]
        answer = found.answer(Inputs(rows, rows, rows, {Role.CACHE: kept}), axes="bqd")
        kept, start = answer.cache, start + part
        assert kept.tokens == start
        outputs.append(answer.output)
    return torch.cat(outputs, dim=1)


@pytest.mark.parametrize("kind", ["pair", "dict", "flat", "named", "asked for"])
def test_a_cache_that_is_returned_goes_back(kind: str) -> None:
    found = subject(Cached(kind))
    assert Role.CACHE in found.takes
    inputs = inputs_for(found)
    whole = found.answer(inputs, axes="bqd").output
    assert torch.allclose(in_steps(found, inputs, 4, 1, 2), whole, atol=1e-6)


def test_texts_that_are_asked_one_by_one_have_a_cache_each() -> None:
    found = subject(OneText("pair"))
    inputs = inputs_for(found)
    whole = found.answer(inputs, axes="bqd").output
    assert whole.shape == (2, 7, 20)
    assert torch.allclose(in_steps(found, inputs, 5, 2), whole, atol=1e-6)


def test_a_cache_can_be_given_to_two_calls() -> None:
    found = subject(hw.MultiHeadAttention(20, 5, rope=Rope()))
    inputs = inputs_for(found)
    rows = inputs.query
    first = found.answer(Inputs(rows, rows, rows, {Role.CACHE: None}), axes="bqd")
    again = [
        found.answer(Inputs(rows, rows, rows, {Role.CACHE: first.cache}), axes="bqd").output for _ in range(2)
    ]
    assert torch.equal(*again)


def test_a_cache_that_cannot_be_copied_is_handed_over_itself() -> None:
    class Handle:
        def __init__(self, key: Tensor, value: Tensor) -> None:
            self.pair = (key, value)

        def __iter__(self) -> Any:
            return iter(self.pair)

        def __deepcopy__(self, memo: object) -> None:
            raise TypeError("no copies")

    class Handing(Cached):
        def forward(self, x: Tensor, cache: Any = None, use_cache: bool = False) -> Any:
            output, kept = super().forward(x, cache, use_cache)
            return output, Handle(*kept)

    found = subject(Handing("pair"))
    inputs = inputs_for(found)
    assert torch.allclose(in_steps(found, inputs, 3, 4), found.answer(inputs, axes="bqd").output, atol=1e-6)


def test_caches_of_headwise_and_of_transformers_are_made_for_them() -> None:
    torch.manual_seed(2)
    llama = LlamaConfig(hidden_size=24, num_attention_heads=4, num_key_value_heads=2, head_dim=6)
    neox = GPTNeoXConfig(hidden_size=24, num_attention_heads=4)
    llama._attn_implementation = neox._attn_implementation = "eager"
    for module, mask in (
        (hw.MultiHeadAttention(24, 4, rope=Rope()), "needs none with a cache"),
        (LlamaAttention(llama, 0), None),
        (GPTNeoXAttention(neox, 0), None),
    ):
        found = subject(module, rope=Rope())
        inputs = inputs_for(found)
        seen = torch.ones(7, 7).tril().log()[None, None]
        whole = found.answer(replace(inputs, options={Role.MASK: hw.Causal() if mask else seen}), axes="bqd")
        rows, last = inputs.query[:, :6], inputs.query[:, 6:]
        first = found.answer(Inputs(rows, rows, rows, {Role.CACHE: None}), axes="bqd")
        assert first.cache.tokens == 6
        step = found.answer(Inputs(last, last, last, {Role.CACHE: first.cache}), axes="bqd")
        assert torch.allclose(step.output, whole.output[:, 6:], atol=1e-5)


def test_where_new_tokens_stand_is_handed_over() -> None:
    seen: list[tuple[int, list[int] | None]] = []

    class Placed(Cached):
        def forward(self, x: Tensor, start_pos: int, position_ids: Any = None, cache: Any = None) -> Any:
            assert position_ids is None or position_ids.shape == x.shape[:2]
            seen.append((start_pos, None if position_ids is None else position_ids[0].tolist()))
            return super().forward(x, cache)

    found = subject(Placed("pair"))
    inputs = inputs_for(found)
    seen.clear()
    in_steps(found, inputs, 4, 1, 2)
    found.answer(inputs, axes="bqd")
    assert seen == [(0, [0, 1, 2, 3]), (4, [4]), (5, [5, 6]), (0, None)]
