"""The seeds of dropout, one draw a call from torch's generator, and what a seed decides by the rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from headwise import nn, ops
from headwise.errors import ArgumentError
from headwise.ops import arguments, dropout, kernel

from ..attention_cases import tensors
from ..kernels.philox_by_hand import KNOWN, word_of

every_path = pytest.mark.parametrize("impl", ["cpu", "torch"])
WORD = 2**32
SEEDS = [0, 7, WORD + 7, 2**63 - 1, -1, -(2**40)]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_torchs_integers_give_the_published_answers(
    counter: list[int], key: list[int], words: list[int]
) -> None:
    # Beside others, broadcast as a call does it: the four words along axes of their own.
    axes = [
        torch.tensor([7, word]).view([2 if axis == place else 1 for axis in range(4)])
        for place, word in enumerate(counter)
    ]
    low, high = (torch.tensor([word]) for word in key)
    found = [word.expand(2, 2, 2, 2)[1, 1, 1, 1].item() for word in dropout.philox(tuple(axes), (low, high))]
    assert found == words


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.999])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_every_weight_is_decided_by_the_rule(seed: int, share: float, dtype: torch.dtype) -> None:
    made = tensors("randn", batch=2, num_heads=3, num_kv_heads=1, seq_len=5, kv_len=9, dtype=dtype)
    call = replace(arguments.check(*made, dropout=share), seed=torch.tensor([seed]))
    found = dropout.kept(call, slice(2, 5))
    assert found.dtype == call.compute_dtype
    assert found.shape == (2, 3, 3, 9)
    for batch, head, row, key in np.ndindex(*found.shape):
        word = word_of(seed, head=3 * batch + head, query=2 + row, key=key)
        expected = torch.tensor(1 / (1 - share) if word >= round(share * WORD) else 0.0, dtype=found.dtype)
        assert found[batch, head, row, key] == expected


def test_a_word_at_the_threshold_is_kept_and_the_next_one_below_it_dropped() -> None:
    made = tensors("randn", batch=2, num_heads=3, num_kv_heads=1, seq_len=5, kv_len=9)
    word = word_of(WORD + 7, head=5, query=4, key=6)
    for threshold, is_kept in ((word, True), (word + 1, False)):
        call = arguments.check(*made, dropout=threshold / WORD)
        found = dropout.kept(replace(call, seed=torch.tensor([WORD + 7])), slice(0, 5))
        assert (found[1, 2, 4, 6] != 0) == is_kept


@every_path
def test_the_generator_of_torch_decides_and_each_call_draws_once(impl: Any) -> None:
    query, key, value = tensors("randn", kv_len=31)

    def attend() -> Tensor:
        return ops.attention(query, key, value, dropout=0.4, impl=impl)

    torch.manual_seed(5)
    dropout.draw_seed(query.device)
    after_one = torch.get_rng_state()
    torch.manual_seed(5)
    first = attend()
    assert torch.equal(torch.get_rng_state(), after_one)
    second, after = attend(), torch.rand(3)
    assert not torch.equal(first, second)
    torch.manual_seed(5)
    assert torch.equal(attend(), first)
    with_logsumexp = ops.attention_with_logsumexp(query, key, value, dropout=0.4, impl=impl)
    assert torch.equal(with_logsumexp.output, second)
    assert torch.equal(torch.rand(3), after)
    torch.manual_seed(6)
    assert not torch.equal(attend(), first)


@every_path
def test_without_dropout_nothing_is_drawn_nor_by_choosing(impl: Any) -> None:
    made = tensors("randn")
    before = torch.get_rng_state()
    ops.attention(*made, impl=impl)
    ops.attention_with_logsumexp(*made, impl=impl)
    assert ops.choose(*made, dropout=0.4, impl=impl).impl == impl
    assert torch.equal(torch.get_rng_state(), before)


def test_in_the_layer_dropout_is_off_in_evaluation_and_on_in_training() -> None:
    layer, given = nn.MultiHeadAttention(12, 3, dropout=0.5), torch.randn(2, 7, 12)
    twin = nn.MultiHeadAttention(12, 3)
    twin.load_state_dict(layer.state_dict())
    with torch.no_grad():  # so that it is the kernel's
        assert torch.equal(layer.eval()(given), twin.eval()(given))
        assert not torch.equal(layer.train()(given), twin.train()(given))
        torch.manual_seed(1)
        first = layer(given)
        torch.manual_seed(1)
        assert torch.equal(layer(given), first)


def test_a_seed_can_be_drawn_while_torch_compiles() -> None:
    draw = torch.compile(lambda: dropout.draw_seed(torch.device("cpu")), fullgraph=True, backend="aot_eager")
    first, second = draw(), draw()
    assert (first.dtype, first.shape) == (torch.int64, (1,))
    assert first != second
    torch.manual_seed(3)
    third = draw()
    torch.manual_seed(3)
    assert draw() == third


def test_dropout_without_a_seed_is_refused() -> None:
    call = arguments.check(*tensors("randn"), dropout=0.25)
    for ask in (dropout.terms, lambda call: dropout.kept(call, slice(0, 5)), kernel.attend):
        with pytest.raises(
            ArgumentError, match=r"dropout=0\.25 without a seed; draw one for the call: seeded"
        ):
            ask(call)
