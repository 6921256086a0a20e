from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from headwise import reference
from headwise.errors import ArgumentError, UnsupportedError
from headwise.masks import Causal, Lengths, Window
from headwise.nn import MultiHeadAttention

BATCH, SEQ_LEN, KV_LEN, D_MODEL = 2, 5, 7, 12
LAYOUTS: dict[str, dict[str, Any]] = {
    "MHA": {"num_heads": 3},
    "GQA": {"num_heads": 6, "num_kv_heads": 2},
    "MQA": {"num_heads": 4, "num_kv_heads": 1},
    "own widths": {"num_heads": 6, "num_kv_heads": 3, "head_dim": 5, "value_head_dim": 7},
    "no bias": {"num_heads": 3, "bias": False},
}
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


def made(layout: dict[str, Any], **more: Any) -> MultiHeadAttention:
    layer = MultiHeadAttention(D_MODEL, **layout, **more)
    for parameter in layer.parameters():  # biases start at 0, where they could be forgotten unseen
        nn.init.normal_(parameter, std=0.5)
    return layer


def sum_over_heads(layer: MultiHeadAttention, query: Tensor, key: Tensor, value: Tensor, mask: Any) -> Tensor:
    """Return `sum over heads of softmax(..) V W_O[head]`, plus the bias, by the reference's weights."""

    def projected(projection: nn.Linear, given: Tensor, heads: int) -> np.ndarray:
        weight = projection.weight.detach().double().numpy()
        flat = given.detach().double().numpy() @ weight.T
        if projection.bias is not None:
            flat = flat + projection.bias.detach().double().numpy()
        return np.stack(np.split(flat, heads, axis=2), axis=1)

    layout = layer.layout
    values = projected(layer.v_proj, value, layout.num_kv_heads)
    weights = reference.attention(
        projected(layer.q_proj, query, layout.num_heads),
        projected(layer.k_proj, key, layout.num_kv_heads),
        values,
        mask=mask,
    ).weights
    mixing = layer.out_proj.weight.detach().double().numpy().T.reshape(layout.num_heads, -1, D_MODEL)
    heads = range(layout.num_heads)
    total = sum(weights[:, head] @ values[:, layout.kv_head_of(head)] @ mixing[head] for head in heads)
    if layer.out_proj.bias is not None:
        total = total + layer.out_proj.bias.detach().double().numpy()
    return torch.from_numpy(np.asarray(total))


def naive(layer: MultiHeadAttention, query: Tensor, key: Tensor, value: Tensor, visible: Tensor) -> Tensor:
    """Return the layer's output by plain torch operations, for autograd to differentiate."""
    layout = layer.layout

    def split(projected: Tensor, heads: int) -> Tensor:
        repeats = layout.num_heads // heads
        return projected.unflatten(2, (heads, -1)).transpose(1, 2).repeat_interleave(repeats, dim=1)

    scores = split(layer.q_proj(query), layout.num_heads) @ split(layer.k_proj(key), layout.num_kv_heads).mT
    weights = torch.softmax((scores / layout.head_dim**0.5).masked_fill(~visible, -torch.inf), -1)
    mixed = weights @ split(layer.v_proj(value), layout.num_kv_heads)
    return layer.out_proj(mixed.transpose(1, 2).flatten(2))


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


def test_weights_start_xavier_uniform_and_biases_at_zero() -> None:
    layer = MultiHeadAttention(64, 8, num_kv_heads=2)
    for projection in (layer.q_proj, layer.k_proj, layer.v_proj, layer.out_proj):
        bound = (6 / sum(projection.weight.shape)) ** 0.5
        assert projection.weight.abs().max() <= bound
        assert projection.weight.abs().max() > 0.98 * bound
        assert projection.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)
        assert (projection.bias == 0).all()
    before = layer.q_proj.weight.clone()
    layer.reset_parameters()
    assert not torch.equal(layer.q_proj.weight, before)


def test_state_dict_names_and_shapes() -> None:
    layer = MultiHeadAttention(12, 6, num_kv_heads=2, head_dim=5, value_head_dim=7, key_dim=11, value_dim=13)
    assert {name: tuple(tensor.shape) for name, tensor in layer.state_dict().items()} == {
        "q_proj.weight": (30, 12),
        "q_proj.bias": (30,),
        "k_proj.weight": (10, 11),
        "k_proj.bias": (10,),
        "v_proj.weight": (14, 13),
        "v_proj.bias": (14,),
        "out_proj.weight": (12, 42),
        "out_proj.bias": (12,),
    }
    assert not any("bias" in name for name in MultiHeadAttention(12, 3, bias=False).state_dict())


def test_parameters_are_as_many_as_the_layout_says() -> None:
    layer = MultiHeadAttention(512, 8, bias=False, device="meta")
    assert sum(parameter.numel() for parameter in layer.parameters()) == 1_048_576
    grouped = MultiHeadAttention(24, 6, num_kv_heads=2)
    count = grouped.layout.projection_weights(24, bias=True).total
    assert sum(parameter.numel() for parameter in grouped.parameters()) == count


def test_device_and_dtype_reach_every_parameter() -> None:
    layer = MultiHeadAttention(12, 3, dtype=torch.float64, device="cpu")
    assert {parameter.dtype for parameter in layer.parameters()} == {torch.float64}
    assert layer(torch.randn(1, 2, 12, dtype=torch.float64)).dtype == torch.float64
    halved = MultiHeadAttention(12, 3).bfloat16()
    assert halved(torch.randn(1, 2, 12).bfloat16()).dtype == torch.bfloat16


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


def test_printed_sizes() -> None:
    shown = repr(MultiHeadAttention(12, 6, num_kv_heads=2, value_head_dim=7, dropout=0.1))
    assert "d_model=12, num_heads=6, num_kv_heads=2, head_dim=2, value_head_dim=7, dropout=0.1" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"d_model": 512, "num_heads": 7}, r"num_heads=7 does not divide d_model=512; .* 8 \(head_dim 64\)"),
        (
            {"d_model": 512, "num_heads": 8, "num_kv_heads": 3},
            r"num_kv_heads=3 does not divide num_heads=8; use",
        ),
        ({"d_model": 0, "num_heads": 8}, r"d_model=0 must be at least 1"),
        ({"d_model": 8, "num_heads": 2, "key_dim": 0}, r"key_dim=0 must be at least 1"),
        ({"d_model": 8, "num_heads": 2, "value_dim": 2.5}, r"value_dim=2.5 is a float; pass an integer"),
        ({"d_model": 8, "num_heads": 2, "dropout": 1.5}, r"dropout=1.5 must be at least 0 and below 1"),
        ({"d_model": 8, "num_heads": 2, "dropout": "a"}, r"dropout is a str; it must be a plain number"),
    ],
)
def test_sizes_that_cannot_be_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        MultiHeadAttention(**arguments)


def test_inputs_that_do_not_fit_are_refused() -> None:
    layer, given = MultiHeadAttention(12, 3, key_dim=11), torch.randn(2, 5, 12)
    with pytest.raises(ArgumentError, match=r"query has shape \(5, 12\); it must be \[batch, length, 12\]"):
        layer(given[0], torch.randn(2, 7, 11))
    with pytest.raises(ArgumentError, match=r"key has shape \(2, 5, 12\); it must be \[batch, length, 11\]"):
        layer(given)
    with pytest.raises(ArgumentError, match=r"value has shape \(2, 7, 3\); it must be \[batch, length, 11\]"):
        layer(given, torch.randn(2, 7, 11), torch.randn(2, 7, 3))
    with pytest.raises(ArgumentError, match="value is given without key; pass both, or neither"):
        layer(given, value=torch.randn(2, 7, 11))
    with pytest.raises(ArgumentError, match=r"mask has shape \(7, 5\), but seq_len is 5, not 7"):
        MultiHeadAttention(12, 3)(given, mask=torch.ones(7, 5, dtype=torch.bool))
    with pytest.raises(TypeError, match="unexpected keyword argument 'is_causal'"):
        MultiHeadAttention(12, 3)(given, is_causal=True)
    with pytest.raises(TypeError, match="positional arguments"):
        MultiHeadAttention(12, 3, 1)  # type: ignore[misc]


def test_a_window_of_one_key_is_the_values_alone() -> None:
    layer, given = made({"num_heads": 3}), torch.randn(BATCH, SEQ_LEN, D_MODEL)
    torch.testing.assert_close(layer(given, mask=Window.of(1)), layer.out_proj(layer.v_proj(given)))
