"""The layer's parameters and sizes: how they start, what they are called, and what is refused."""

from typing import Any

import pytest
import torch

from headwise.errors import ArgumentError
from headwise.nn import MultiHeadAttention


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
