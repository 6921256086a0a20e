"""Dropout on weights: every path makes the same decisions from one draw, and they are as good as chance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from headwise import nn, ops
from headwise.errors import ArgumentError
from headwise.masks import Causal, Lengths, Window
from headwise.ops import arguments, dropout, kernel

from ..attention_cases import Case, tensors
from ..kernels.philox_by_hand import KNOWN, word_of
from ..naive import gradients, naive_attention
from ..tolerance import assert_within_rule
from .bits import bits, threads

PATHS = ("cpu", "torch")
every_path = pytest.mark.parametrize("impl", PATHS)
WORD = 2**32
SEEDS = [0, 7, WORD + 7, 2**63 - 1, -1, -(2**40)]


def weights_of(query: Tensor, key: Tensor, *, manual_seed: int = 11, **options: Any) -> Tensor:
    """Return the weights after dropout, `[batch, num_heads, seq_len, kv_len]`: the values are needles."""
    kv_len = key.shape[2]
    found = []
    for first in range(0, kv_len, 256):  # the kernel's widest value
        needles = torch.eye(kv_len, dtype=key.dtype)[:, first : first + 256]
        torch.manual_seed(manual_seed)
        found.append(ops.attention(query, key, needles.expand(*key.shape[:3], -1), **options))
    return torch.cat(found, -1)


def decisions_after(manual_seed: int, query: Tensor, key: Tensor, share: float) -> Tensor:
    """Return what the seed that is drawn after `torch.manual_seed(manual_seed)` decides."""
    torch.manual_seed(manual_seed)
    call = dropout.seeded(arguments.check(query, key, key, dropout=share))
    return dropout.kept(call, slice(0, call.sizes.seq_len))


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


SIZES = [(3, 7), (31, 255), (29, 256), (25, 257), (53, 515)]
"""seq_len and kv_len: few rows and many, up to a tile, over its edge and over two."""

MASKS: dict[str, Callable[[int, int], dict[str, Any]]] = {
    "none": lambda _rows, _keys: {},
    "causal": lambda _rows, _keys: {"mask": Causal()},
    "window": lambda _rows, _keys: {"mask": Window(100, 60)},
    "lengths": lambda _rows, keys: {"mask": Lengths([keys - 3, keys // 2])},
    "boolean": lambda rows, keys: {"mask": torch.rand(2, 1, rows, keys) < 0.7},
    "bias": lambda rows, keys: {
        "bias": torch.randn(rows, keys).masked_fill(torch.rand(rows, keys) < 0.2, -torch.inf)
    },
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("seq_len", "kv_len"), SIZES)
def test_kernel_and_torch_drop_the_same_weights(seq_len: int, kv_len: int, mask: str) -> None:
    for (num_heads, num_kv_heads), share in (((6, 3), 0.1), ((4, 1), 0.5), ((5, 5), 0.999)):
        sizes = {"num_heads": num_heads, "num_kv_heads": num_kv_heads, "seq_len": seq_len, "kv_len": kv_len}
        query, key, _ = tensors("randn", **sizes)
        options = MASKS[mask](seq_len, kv_len)
        visible = Case(mask, query, key, key, options).visible().expand(2, num_heads, -1, -1)
        expected = decisions_after(11, query, key, share)
        for impl in PATHS:
            found = weights_of(query, key, dropout=share, impl=impl, **options)
            assert torch.equal(found != 0, visible & (expected != 0)), impl


OPTIONS: dict[str, dict[str, Any]] = {
    "causal": {"mask": Causal()},
    "softcap": {"softcap": 2.0},
    "sinks": {"sinks": torch.tensor([0.0, 3.0, -1.0, 0.5, 2.0, -torch.inf])},
    "gates": {"head_gates": torch.tensor([0.0, 1.0, -1.0, 2.0, 0.5, 1.0])},
    "all": {
        "mask": Causal(),
        "bias": torch.linspace(-3, 3, 6)[:, None, None],
        "softcap": 3.0,
        "sinks": torch.linspace(-2, 2, 6),
        "head_gates": torch.linspace(-1, 1, 6).expand(2, 6),
    },
}


@every_path
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("seq_len", [2, 67])
def test_the_output_is_the_weights_that_are_kept_times_the_values(
    impl: Any, dtype: torch.dtype, name: str, seq_len: int
) -> None:
    query, key, value = tensors("peaked", seq_len=seq_len, kv_len=271, value_head_dim=13, dtype=dtype)
    options, share = OPTIONS[name], 0.3
    decided = decisions_after(3, query, key, share)
    exact, plain = (
        kept_times_values(*(tensor.to(kind) for tensor in (query, key, value)), decided, options)
        for kind in (torch.float64, dtype)
    )
    torch.manual_seed(3)
    assert_within_rule(ops.attention(query, key, value, dropout=share, impl=impl, **options), exact, plain)


def kept_times_values(
    query: Tensor, key: Tensor, value: Tensor, decided: Tensor, options: dict[str, Any]
) -> Tensor:
    """Return the formula: softmax, dropout, weighted sum, gate."""
    terms = {name: option for name, option in options.items() if name != "head_gates"}
    needles = torch.eye(key.shape[2], dtype=key.dtype).expand(*key.shape[:3], -1)
    weights = naive_attention(query, key, needles, **terms).output
    output = (weights * decided.to(weights.dtype)) @ value.repeat_interleave(2, dim=1)
    gates = options.get("head_gates", torch.ones(6))
    return output * gates.to(output.dtype)[..., None, None]


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


def test_the_logsumexp_knows_nothing_of_dropout() -> None:
    made = tensors("randn", seq_len=31, kv_len=257)
    plain = ops.attention_with_logsumexp(*made, impl="cpu")
    found = ops.attention_with_logsumexp(*made, dropout=0.7, impl="cpu")
    assert torch.equal(bits(found.logsumexp), bits(plain.logsumexp))


@pytest.mark.parametrize("seq_len", [3, 67])
def test_a_share_that_drops_nothing_changes_no_bit(seq_len: int) -> None:
    made = tensors("randn", seq_len=seq_len, kv_len=515)
    plain = ops.attention(*made, mask=Causal(), impl="cpu")
    found = ops.attention(*made, mask=Causal(), dropout=1e-12, impl="cpu")
    assert torch.equal(bits(found), bits(plain))


@pytest.mark.parametrize(("seq_len", "kv_len"), [(131, 1031), (3, 4099)])
def test_the_number_of_threads_changes_no_bit(seq_len: int, kv_len: int) -> None:
    made = tensors("randn", seq_len=seq_len, kv_len=kv_len, head_dim=64)

    def attend() -> Tensor:
        torch.manual_seed(2)
        return ops.attention(*made, mask=Causal(), dropout=0.2, impl="cpu")

    with threads(1):
        alone = attend()
    for count in (2, 3, 4):
        with threads(count):
            assert torch.equal(bits(attend()), bits(alone)), f"{count} threads"


@every_path
@pytest.mark.parametrize("seq_len", [4, 29])
def test_a_dropped_key_is_seen(impl: Any, seq_len: int) -> None:
    """What is not finite there counts; a row that sees nothing stays empty, one that keeps nothing is 0."""
    query, key, value = tensors("randn", seq_len=seq_len, kv_len=259)
    share, mask = 0.9, torch.ones(seq_len, 259, dtype=torch.bool)
    mask[1] = False
    mask[2, 200], mask[3, 5:] = False, False
    value[:, :, 200, 0], value[:, :, 258, 1] = torch.nan, torch.inf
    decided = decisions_after(9, query, key, share)
    assert (decided[:, :, [0], 200] == 0).any(), "none of these is dropped"
    assert (decided[:, :, 3, :5] == 0).all(-1).any(), "every row keeps something"
    torch.manual_seed(9)
    output, logsumexp = ops.attention_with_logsumexp(query, key, value, mask=mask, dropout=share, impl=impl)
    assert output[:, :, 0, 0].isnan().all()
    assert (output[:, :, 0, 1] == torch.inf).all()
    assert (output[:, :, 1] == 0).all()
    assert (logsumexp[:, :, 1] == -torch.inf).all()
    assert output[:, :, 2, 0].isfinite().all()
    emptied = (decided[:, :, 3, :5] == 0).all(-1)
    assert torch.equal((output[:, :, 3] == 0).all(-1), emptied)
    assert logsumexp[:, :, 3].isfinite().all()
    assert output[..., 2:].isfinite().all()


@every_path
def test_sums_of_large_values_are_right_to_the_end_of_float32(impl: Any) -> None:
    """A sum that is not divided yet overflows where its mean does not; a mean that is infinite stays so."""
    query, key, value = tensors("randn", seq_len=67, kv_len=515)
    value = value.sign() * 3e38
    value[..., 0] = 3e38
    decided = decisions_after(4, query, key, 0.5)
    exact = kept_times_values(query.double(), key.double(), value.double(), decided, {})
    torch.manual_seed(4)
    found = ops.attention(query, key, value, dropout=0.5, impl=impl).double()
    largest = torch.finfo(torch.float32).max
    infinite, finite = exact > 1.0001 * largest, exact.abs() < 0.9999 * largest
    assert infinite.any()
    assert (found[infinite] == torch.inf).all()
    torch.testing.assert_close(found[finite], exact[finite], rtol=0, atol=2e-5 * largest)


def test_the_gradient_is_that_of_the_formula_with_the_same_decisions() -> None:
    made = tensors("randn", seq_len=5, kv_len=7, dtype=torch.float64)
    decided, upstream = decisions_after(8, *made[:2], 0.4), torch.randn(2, 6, 5, 11, dtype=torch.float64)

    def attend(*leaves: Tensor) -> Tensor:
        torch.manual_seed(8)
        return ops.attention(*leaves, mask=Causal(), dropout=0.4)

    found = gradients(attend, list(made), upstream)
    expected = gradients(
        lambda *leaves: kept_times_values(*leaves, decided, {"mask": Causal()}), list(made), upstream
    )
    torch.testing.assert_close(found, expected)


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
