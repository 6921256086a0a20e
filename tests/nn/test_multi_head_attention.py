"""The layer's numbers: the sum over heads, its gradients, masks, dropout, autocast, and that it learns."""

from typing import Any

import pytest
import torch
from torch import nn

from headwise.errors import UnsupportedError
from headwise.masks import Causal, Lengths, Window
from headwise.nn import MultiHeadAttention

from .layer_cases import BATCH, D_MODEL, KV_LEN, LAYOUTS, SEQ_LEN, made, naive, sum_over_heads

MASKS: dict[str, Any] = {
    "none": None,
    "causal": Causal(),
    "padded": Lengths([0, 4]),
    "causal and padded": Causal() & Lengths([3, 5], padding="left"),
    "boolean": torch.ones(SEQ_LEN, SEQ_LEN, dtype=torch.bool).tril(1),
    "boolean per batch": torch.stack([torch.eye(SEQ_LEN).bool(), torch.zeros(SEQ_LEN, SEQ_LEN).bool()]),
    "float": torch.randn(SEQ_LEN, SEQ_LEN, generator=torch.Generator().manual_seed(1)),
}
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
every_mask = pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)


@every_layout
@every_mask
def test_self_attention_is_the_sum_over_heads(layout: dict[str, Any], mask: Any) -> None:
    layer, given = made(layout), torch.randn(BATCH, SEQ_LEN, D_MODEL)
    exact = sum_over_heads(layer, given, given, given, mask)
    torch.testing.assert_close(layer(given, mask=mask).double(), exact, rtol=1e-5, atol=1e-5)


@every_layout
def test_cross_attention_is_the_sum_over_heads(layout: dict[str, Any]) -> None:
    layer = made(layout, key_dim=11, value_dim=13)
    query, key, value = (
        torch.randn(BATCH, length, width) for length, width in ((SEQ_LEN, 12), (KV_LEN, 11), (KV_LEN, 13))
    )
    for mask in (None, Causal(), Lengths([2, KV_LEN])):
        exact = sum_over_heads(layer, query, key, value, mask)
        torch.testing.assert_close(layer(query, key, value, mask=mask).double(), exact, rtol=1e-5, atol=1e-5)


def test_value_is_key_by_default_and_key_is_query() -> None:
    layer = made({"num_heads": 3})
    query, key = torch.randn(BATCH, SEQ_LEN, D_MODEL), torch.randn(BATCH, KV_LEN, D_MODEL)
    assert torch.equal(layer(query, key), layer(query, key, key))
    assert torch.equal(layer(query), layer(query, query, query))
    wide = MultiHeadAttention(D_MODEL, 3, key_dim=11)
    assert (wide.key_dim, wide.value_dim) == (11, 11)
    assert wide(query, torch.randn(BATCH, KV_LEN, 11)).shape == (BATCH, SEQ_LEN, D_MODEL)


@every_layout
def test_gradients_of_parameters_and_inputs_equal_those_of_naive_code(layout: dict[str, Any]) -> None:
    layer = made(layout).double()
    visible = torch.ones(SEQ_LEN, KV_LEN, dtype=torch.bool).tril(KV_LEN - SEQ_LEN)
    query, key = (
        torch.randn(BATCH, length, D_MODEL, dtype=torch.float64, requires_grad=True)
        for length in (SEQ_LEN, KV_LEN)
    )
    wanted = [query, key, *layer.parameters()]
    upstream = torch.randn(BATCH, SEQ_LEN, D_MODEL, dtype=torch.float64)
    found = torch.autograd.grad(layer(query, key, mask=Causal()), wanted, upstream)
    expected = torch.autograd.grad(naive(layer, query, key, key, visible), wanted, upstream)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@every_layout
def test_rows_that_see_nothing_are_the_output_bias_exactly(layout: dict[str, Any]) -> None:
    layer, given = made(layout), torch.randn(BATCH, SEQ_LEN, D_MODEL)
    found = layer(given, mask=Lengths([0, 4]))
    bias = torch.zeros(D_MODEL) if layer.out_proj.bias is None else layer.out_proj.bias
    assert torch.equal(found[0], bias.expand(SEQ_LEN, D_MODEL))
    found.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())


def test_padding_may_hold_anything_in_the_keys() -> None:
    layer, query = made({"num_heads": 3}), torch.randn(1, SEQ_LEN, D_MODEL)
    key = torch.randn(1, KV_LEN, D_MODEL)
    expected = layer(query, key[:, :4])
    key[:, 4:] = torch.nan
    torch.testing.assert_close(layer(query, key, mask=Lengths([4])), expected)


def test_bias_is_added_to_the_scores() -> None:
    layer, given = made({"num_heads": 3}), torch.randn(BATCH, SEQ_LEN, D_MODEL)
    bias = torch.randn(3, SEQ_LEN, SEQ_LEN)
    torch.testing.assert_close(layer(given, bias=bias), layer(given, mask=bias))
    assert not torch.allclose(layer(given, bias=bias), layer(given))


def test_named_implementations_run_or_raise() -> None:
    layer, given = made({"num_heads": 3}), torch.randn(BATCH, SEQ_LEN, D_MODEL)
    with pytest.raises(UnsupportedError, match='impl="reference" has no gradient'):
        layer(given, impl="reference")
    with torch.no_grad():
        torch.testing.assert_close(layer(given, impl="reference"), layer(given, impl="torch"))


def test_dropout_acts_in_training_only_and_is_seeded() -> None:
    layer, given = made({"num_heads": 3}, dropout=0.5), torch.randn(BATCH, SEQ_LEN, D_MODEL)
    torch.manual_seed(5)
    first, second = layer(given), layer(given)
    assert not torch.equal(first, second)
    torch.manual_seed(5)
    assert torch.equal(layer(given), first)
    layer.eval()
    expected = sum_over_heads(layer, given, given, given, None)
    torch.testing.assert_close(layer(given).double(), expected, rtol=1e-5, atol=1e-5)


def test_autocast_works() -> None:
    layer, given = made({"num_heads": 3}), torch.randn(BATCH, SEQ_LEN, D_MODEL)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = layer(given, mask=Causal())
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), layer(given, mask=Causal()), rtol=0.1, atol=0.3)


def test_a_small_task_is_learnt() -> None:
    """Recall: a token asks for the one that came after it, which only the right head pattern can tell."""
    layer, table = MultiHeadAttention(16, 4, num_kv_heads=2), nn.Embedding(10, 16)
    optimiser = torch.optim.Adam([*layer.parameters(), *table.parameters()], lr=0.02)
    rows, losses = torch.arange(32), []
    for _ in range(120):
        tokens, asked = torch.stack([torch.randperm(10)[:6] for _ in rows]), torch.randint(0, 5, (32,))
        value = table(tokens)
        key = torch.cat([torch.zeros(32, 1, 16), value[:, :-1]], dim=1)  # each key is the token before
        answer = layer(table(tokens[rows, asked])[:, None], key, value)[:, 0] @ table.weight.T
        loss = nn.functional.cross_entropy(answer, tokens[rows, asked + 1])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[0] > 1.5
    assert sum(losses[-10:]) / 10 < 0.5


def test_a_window_of_one_key_is_the_values_alone() -> None:
    layer, given = made({"num_heads": 3}), torch.randn(BATCH, SEQ_LEN, D_MODEL)
    torch.testing.assert_close(layer(given, mask=Window.of(1)), layer.out_proj(layer.v_proj(given)))
