"""Dropout on weights: kernel and plain torch drop the same ones, and the output is that of the formula."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from headwise import ops
from headwise.masks import Causal, Lengths, Window
from headwise.ops import arguments, dropout

from ..attention_cases import Case, tensors
from ..naive import gradients, naive_attention
from ..tolerance import assert_within_rule
from .bits import bits, threads

PATHS = ("cpu", "torch")
every_path = pytest.mark.parametrize("impl", PATHS)


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


@every_path
@pytest.mark.parametrize(("seq_len", "kv_len"), [(5, 7), (67, 271)])
def test_the_gradient_is_that_of_the_formula_with_the_same_decisions(
    impl: Any, seq_len: int, kv_len: int
) -> None:
    made = tensors("randn", seq_len=seq_len, kv_len=kv_len)
    decided, upstream = decisions_after(8, *made[:2], 0.4), torch.randn(2, 6, seq_len, 11)

    def attend(*leaves: Tensor) -> Tensor:
        torch.manual_seed(8)
        return ops.attention(*leaves, mask=Causal(), dropout=0.4, impl=impl)

    def formula(*leaves: Tensor) -> Tensor:
        return kept_times_values(*leaves, decided, {"mask": Causal()})

    exact = gradients(formula, [tensor.double() for tensor in made], upstream.double())
    plain = gradients(formula, list(made), upstream)
    found = gradients(attend, list(made), upstream)
    for name, *each in zip(("query", "key", "value"), found, exact, plain, strict=True):
        assert_within_rule(*each, f"gradient of {name}")
