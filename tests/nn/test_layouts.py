import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from headwise.errors import ArgumentError
from headwise.masks import Causal
from headwise.nn import MultiHeadAttention
from headwise.nn.layouts import (
    LAYOUTS,
    HeadWeights,
    half_split,
    interleaved,
    read_weights,
    write_weights,
)
from headwise.nn.layouts.forward import attend
from headwise.rope import Rope

HEADS, WIDTH = 6, 4
GROUPED = {"headwise", "falcon_new_decoder", "phi3", "llama", "llama_meta", "keras", "flax"}
FREE_WIDTHS = {"headwise", "keras"}
FILLED = sorted(set(LAYOUTS) - {"falcon_multi_query"})


def made(
    *, num_kv_heads: int = HEADS, value_head_dim: int = WIDTH, d_model: int = HEADS * WIDTH, bias: bool = True
) -> HeadWeights:
    return HeadWeights(
        query=torch.randn(HEADS, WIDTH, d_model),
        key=torch.randn(num_kv_heads, WIDTH, d_model),
        value=torch.randn(num_kv_heads, value_head_dim, d_model),
        out=torch.randn(HEADS, value_head_dim, d_model),
        query_bias=torch.randn(HEADS, WIDTH) if bias else None,
        key_bias=torch.randn(num_kv_heads, WIDTH) if bias else None,
        value_bias=torch.randn(num_kv_heads, value_head_dim) if bias else None,
        out_bias=torch.randn(d_model) if bias else None,
    )


def suiting(layout: str, **more: Any) -> HeadWeights:
    """Return weights as general as the layout allows."""
    num_kv_heads = 2 if layout in GROUPED else 1 if layout == "falcon_multi_query" else HEADS
    return made(num_kv_heads=num_kv_heads, value_head_dim=5 if layout in FREE_WIDTHS else WIDTH, **more)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
def test_what_is_read_back_is_what_was_written(layout: str, dtype: torch.dtype, bias: bool) -> None:
    weights = suiting(layout, bias=bias).mapped(lambda given: given.to(dtype))
    found = read_weights(write_weights(weights, layout), layout, num_heads=HEADS)
    assert found.identical(weights)
    assert not found.identical(weights.mapped(lambda given: given * 2))


def test_a_layer_goes_round_all_layouts_and_comes_back() -> None:
    weights = around = made()
    for layout in FILLED:
        around = read_weights(write_weights(around, layout), layout, num_heads=HEADS, num_kv_heads=HEADS)
    assert around.identical(weights)


@pytest.mark.parametrize(
    "sizes",
    [
        {"num_heads": 3},
        {
            "num_heads": 6,
            "num_kv_heads": 2,
            "head_dim": 5,
            "value_head_dim": 7,
            "key_dim": 10,
            "value_dim": 11,
        },
        {"num_heads": 4, "num_kv_heads": 1, "bias": False},
    ],
    ids=["MHA", "GQA with own widths", "MQA without bias"],
)
def test_the_weights_of_a_headwise_layer_give_what_it_gives(sizes: dict[str, Any]) -> None:
    layer = MultiHeadAttention(12, **sizes)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    given = (torch.randn(2, 5, 12), torch.randn(2, 7, layer.key_dim), torch.randn(2, 7, layer.value_dim))
    weights = read_weights(layer.state_dict(), "headwise", num_heads=sizes["num_heads"])
    assert weights.heads == layer.layout
    torch.testing.assert_close(attend(weights, given, mask=Causal()), layer(*given, mask=Causal()))


def test_grouped_heads_with_kv_heads_of_their_own_are_the_same_layer() -> None:
    weights, given = made(num_kv_heads=2).mapped(Tensor.double), torch.randn(2, 5, 24).double()
    own = weights.with_own_kv_heads()
    assert own.heads.num_kv_heads == HEADS
    inputs = (given, given, given)
    torch.testing.assert_close(attend(own, inputs), attend(weights, inputs), rtol=0, atol=1e-11)
    layer = nn.MultiheadAttention(24, HEADS, batch_first=True).double()
    layer.load_state_dict(write_weights(own, "torch"))
    torch.testing.assert_close(layer(*inputs)[0], attend(weights, inputs), rtol=0, atol=1e-11)


def test_missing_biases_are_zeros_and_change_nothing() -> None:
    weights, given = made(bias=False), torch.randn(2, 5, 24)
    filled = weights.with_all_biases()
    assert torch.equal(attend(filled, (given, given, given)), attend(weights, (given, given, given)))
    assert "in_proj_bias" in write_weights(filled, "torch")
    kept = made().with_all_biases()
    assert kept.query_bias is not None
    assert kept.query_bias.abs().min() > 0


def test_what_is_written_can_be_changed_without_changing_the_weights() -> None:
    weights = made()
    state = write_weights(weights, "headwise")
    before = weights.mapped(Tensor.clone)
    for tensor in state.values():
        tensor.zero_()
    assert weights.identical(before)


@pytest.mark.parametrize("rotary_dim", [2, 4, None])
def test_the_rotary_orders_are_inverse_and_give_the_same_scores(rotary_dim: int | None) -> None:
    halves = made(num_kv_heads=2).mapped(Tensor.double)
    neighbours = interleaved(halves, rotary_dim=rotary_dim)
    assert half_split(neighbours, rotary_dim=rotary_dim).identical(halves)
    assert (rotary_dim == 2) == neighbours.identical(halves)
    given = torch.randn(1, 5, 24).double()

    def scores(weights: HeadWeights, rope: Rope) -> Tensor:
        assert weights.query_bias is not None
        assert weights.key_bias is not None
        query = torch.einsum("bsi,hwi->bhsw", given, weights.query) + weights.query_bias[:, None]
        key = torch.einsum("bsi,hwi->bhsw", given, weights.key) + weights.key_bias[:, None]
        query, key = rope.rotate(query, key)
        return query[:, :2] @ key.mT

    found = scores(halves, Rope(rotary_dim=rotary_dim))
    wanted = scores(neighbours, Rope(rotary_dim=rotary_dim, pairing="interleaved"))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-11)


# In a process of its own: JAX keeps the threads it is started with, and other tests say with how many.
OF_JAX = """
import sys
import jax.numpy as jnp
import numpy as np
from torch import Tensor
from headwise.nn.layouts import read_weights
state, num_heads = dict(np.load(sys.argv[1])), int(sys.argv[2])
of_jax = {name: jnp.asarray(array, dtype=jnp.bfloat16) for name, array in state.items()}
rounded = read_weights(state, "keras", num_heads=num_heads).mapped(Tensor.bfloat16)
print(read_weights(of_jax, "keras", num_heads=num_heads).identical(rounded))
"""


def test_arrays_of_jax_are_read(tmp_path: Path) -> None:
    kept = tmp_path / "state.npz"
    np.savez(kept, **{name: tensor.numpy() for name, tensor in write_weights(made(), "keras").items()})
    command = [sys.executable, "-c", OF_JAX, kept, str(HEADS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr


def test_arrays_of_numpy_are_read_and_are_not_shared() -> None:
    state = {name: tensor.numpy() for name, tensor in write_weights(made(), "keras").items()}
    wanted = read_weights(state, "keras", num_heads=HEADS)
    frozen = {name: array.copy() for name, array in state.items()}
    for array in frozen.values():
        array.setflags(write=False)
    assert read_weights(frozen, "keras", num_heads=HEADS).identical(wanted)
    before = wanted.mapped(Tensor.clone)
    for array in state.values():
        array.fill(0)
    assert wanted.identical(before)


def test_stored_masks_are_passed_over_and_nothing_else_is() -> None:
    state = write_weights(made(), "gpt2")
    old = {**state, "bias": np.tril(np.ones((1, 1, 5, 5))), "masked_bias": torch.tensor(-1e4)}
    found = read_weights(old, "gpt2", num_heads=HEADS)
    assert found.identical(read_weights(state, "gpt2", num_heads=HEADS))
    normed = {**write_weights(made(), "llama"), "q_norm.weight": torch.ones(4)}
    with pytest.raises(ArgumentError, match=r"'llama' has no q_norm\.weight; .*without a prefix"):
        read_weights(normed, "llama", num_heads=HEADS)
