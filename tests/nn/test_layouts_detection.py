"""Detection says which layout fits, that none does, or that nothing could decide."""

from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.errors import ArgumentError, MismatchError
from headwise.masks import Causal, Lengths
from headwise.nn.layouts import detect_layout, read_weights, write_weights
from headwise.nn.layouts.forward import attend
from headwise.rope import Rope

from .test_layouts import HEADS, made


def given(*, seq_len: int = 7) -> tuple[Tensor, Tensor, Tensor]:
    hidden = torch.randn(2, seq_len, 24)
    return hidden, hidden, hidden


def test_the_same_names_and_shapes_are_told_apart_by_the_numbers() -> None:
    inputs = given()
    for layout in ("gpt_neox", "torch"):
        state = write_weights(made(), layout)
        output = attend(read_weights(state, layout, num_heads=HEADS), inputs)
        qkv = next(tensor for name, tensor in state.items() if tensor.shape == (72, 24))
        qkv_bias = next(tensor for tensor in state.values() if tensor.shape == (72,))
        renamed = {
            "qkv": qkv,
            "qkv_bias": qkv_bias,
            "out": state[out_name(state)],
            "out_bias": bias_of(state),
        }
        found = detect_layout(renamed, inputs, output, num_heads=HEADS)
        assert layout in found.only().layouts
        assert found.only().causal is False
        assert set(found.refused) >= {"gpt2", "llama", "keras", "falcon_multi_query"}
        assert len(found.tried) == 4  # concatenated and grouped, causal and not
        assert [one.error for one in found.tried] == sorted(one.error for one in found.tried)


def out_name(state: dict[str, Tensor]) -> str:
    return next(name for name in state if name in {"dense.weight", "out_proj.weight"})


def bias_of(state: dict[str, Tensor]) -> Tensor:
    return state[out_name(state).replace("weight", "bias")]


def test_none_fits_and_the_nearest_is_named() -> None:
    inputs = given()
    weights = made()
    output = attend(weights, inputs) + inputs[0]  # the residual is in it
    found = detect_layout(write_weights(weights, "torch"), inputs, output, num_heads=HEADS)
    assert found.fits == ()
    assert not any(line.startswith("  fits") for line in str(found).splitlines())
    with pytest.raises(
        MismatchError, match=r"none of 4 readings comes within 3\.5e-04; the nearest is .*residual"
    ):
        found.only()


def test_rope_tells_the_two_rotary_orders_apart() -> None:
    inputs, rope = given(), Rope(base=100.0)
    weights = made(num_kv_heads=2)
    state = write_weights(weights, "llama_meta")
    output = attend(weights, inputs, mask=Causal(), rope=rope)
    found = detect_layout(state, inputs, output, num_heads=HEADS, rope=rope)
    assert found.only().layouts == ("llama_meta",)
    assert found.only().weights.identical(weights)
    assert str(found).startswith("one of 4 readings comes within 3.5e-04: llama_meta, causal: error")
    neighbours = Rope(base=100.0, pairing="interleaved")  # what is looked for, whatever is said of it
    again = detect_layout(state, inputs, output, num_heads=HEADS, rope=neighbours)
    assert again.only() == found.only()
    without = detect_layout(state, inputs, output, num_heads=HEADS)
    assert without.fits == ()  # never a wrong one instead
    assert "only rope can show" in without.refused["llama_meta"]


def test_what_one_token_cannot_tell_is_said_to_be_open() -> None:
    inputs, weights = given(seq_len=1), made()
    state, output = write_weights(weights, "headwise"), attend(weights, inputs)
    found = detect_layout(state, inputs, output, num_heads=HEADS)
    assert [one.causal for one in found.fits] == [False, True]
    turned = detect_layout(state, inputs, output, num_heads=HEADS, rope=Rope())
    assert {(one.layouts[0], one.causal) for one in turned.fits} == {
        (layout, causal) for layout in ("headwise", "llama_meta") for causal in (True, False)
    }
    with pytest.raises(
        ArgumentError, match=r"4 readings come within 3\.5e-04, so these inputs cannot decide"
    ):
        turned.only()


def test_a_mask_and_a_scale_that_are_given_are_used() -> None:
    inputs, mask = given(), Causal() & Lengths([7, 5])
    weights = made()
    state = write_weights(weights, "headwise")
    output = attend(weights, inputs, mask=mask, scale=1.0)
    found = detect_layout(state, inputs, output, num_heads=HEADS, mask=mask, scale=1.0)
    assert found.only().causal is None
    assert "headwise" in found.only().layouts
    assert not detect_layout(state, inputs, output, num_heads=HEADS, mask=mask).fits


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_fit_within_their_rounding(dtype: torch.dtype) -> None:
    weights = made().mapped(lambda one: (0.2 * one).to(dtype))
    hidden = torch.randn(2, 7, 24, dtype=dtype)
    state = write_weights(weights, "gpt_neox")
    output = attend(weights, (hidden, hidden, hidden), mask=Causal())
    found = detect_layout(state, hidden, output, num_heads=HEADS)
    assert "gpt_neox" in found.only().layouts
    assert found.only().error > 0
    assert found.tolerance == torch.finfo(dtype).eps ** 0.5
    assert not detect_layout(state, hidden, output, num_heads=HEADS, tolerance=1e-9).fits


def test_a_large_output_bias_hides_no_error() -> None:
    inputs = given()
    state = write_weights(made(), "gpt_neox")
    state["dense.bias"] += 1e6
    output = attend(read_weights(state, "gpt_neox", num_heads=HEADS).mapped(Tensor.double), double(inputs))
    found = detect_layout(state, inputs, output, num_heads=HEADS)
    assert "gpt_neox" in found.only().layouts


def double(inputs: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    return inputs[0].double(), inputs[1].double(), inputs[2].double()


def test_no_layout_can_have_the_weights() -> None:
    state = {"qkv": torch.ones(71, 24), "out": torch.ones(24, 24)}
    found = detect_layout(state, torch.randn(1, 3, 24), torch.randn(1, 3, 24), num_heads=HEADS)
    assert found.tried == ()
    with pytest.raises(
        MismatchError, match=r"no layout can have these weights\n  not tried: layout 'headwise'"
    ):
        found.only()


HIDDEN = torch.ones(2, 7, 24)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"weights": {"attn.w": HIDDEN}},
            r"attn\.w belong to no known layout; rename .*query, key, value, qkv",
        ),
        (
            {"weights": {"wq.weight": HIDDEN, "query": HIDDEN}},
            "wq.weight and query play the same part, query",
        ),
        (
            {"weights": {"qkv": torch.ones(3, 3).int()}},
            r"qkv holds torch\.int32; give the weights dequantised",
        ),
        ({"weights": {"qkv": torch.full((3, 3), torch.nan)}}, "qkv holds 9 NaN or infinite numbers"),
        ({"inputs": HIDDEN[0]}, r"inputs \(query\) has shape \(7, 24\) and dtype torch\.float32; it must be"),
        ({"inputs": HIDDEN / 0}, r"inputs \(query\) holds 336 NaN or infinite"),
        ({"inputs": (HIDDEN, HIDDEN, HIDDEN.int())}, r"inputs \(value\) .* torch\.int32"),
        (
            {"inputs": HIDDEN[..., :23]},
            r"inputs are \(23, 23, 23\) wide, and the weights read \(24, 24, 24\)",
        ),
        ({"output": HIDDEN[:0]}, r"output has shape \(0, 7, 24\)"),
        ({"output": HIDDEN[:1]}, r"output has shape \(1, 7, 24\); .* it is \(2, 7, 24\)"),
        ({"output": HIDDEN[..., :5]}, r"out_proj\.bias has shape \(24,\), and the output is 5 wide"),
        ({"weights": HIDDEN}, "weights is a Tensor; pass names and tensors"),
        ({"inputs": (HIDDEN, HIDDEN)}, r"inputs are 2 tensors; pass one, or three: query, key and value"),
        ({"inputs": "text"}, r"inputs \(query\) is a str; pass a tensor or an array of numbers"),
        ({"output": (HIDDEN, None)}, r"output is a tuple; pass its first tensor, as output\[0\]"),
        ({"output": "text"}, "output is a str; pass a tensor or an array of numbers"),
        ({"tolerance": -1.0}, r"tolerance=-1\.0 must be a number of at least 0, such as 0\.001"),
        ({"tolerance": "a"}, "tolerance='a' must be a number of at least 0"),
        ({"tolerance": float("nan")}, "tolerance=nan must be a number of at least 0"),
        ({"rope": 10_000.0}, r"rope=10000\.0 is a float; pass a Rope"),
        ({"rope": Rope(rotary_dim=6)}, "turn 6 elements of a head of head_dim=4"),
        ({"inputs": (HIDDEN, HIDDEN[:, :5], HIDDEN[:, :5]), "rope": Rope()}, "they are of the same tokens"),
    ],
)
def test_what_nothing_can_be_judged_by_is_refused(changed: dict[str, Any], message: str) -> None:
    call = {"weights": write_weights(made(), "torch"), "inputs": HIDDEN, "output": HIDDEN, **changed}
    with pytest.raises(ArgumentError, match=message):
        detect_layout(call.pop("weights"), call.pop("inputs"), call.pop("output"), num_heads=HEADS, **call)


def test_fused_and_apart_at_once_fits_nothing() -> None:
    inputs, weights = given(), made()
    state = {**write_weights(weights, "torch"), "query": torch.ones(24, 24)}
    found = detect_layout(state, inputs, attend(weights, inputs), num_heads=HEADS)
    assert found.fits == ()
    assert "in_proj_weight and query hold the same part" in found.refused["torch"]
    state = {**write_weights(weights, "torch"), "value_bias": torch.ones(24)}
    found = detect_layout(state, inputs, attend(weights, inputs), num_heads=HEADS)
    assert "in_proj_bias and value_bias hold the same part" in found.refused["gpt_neox"]


def test_arrays_are_taken_as_inputs_and_output_too() -> None:
    inputs, weights = given(), made()
    state = {name: tensor.numpy() for name, tensor in write_weights(weights, "keras").items()}
    output = attend(weights, inputs, mask=Causal()).numpy()
    found = detect_layout(state, inputs[0].numpy(), output, num_heads=HEADS)
    assert found.only().layouts == ("keras", "flax")
    assert found.only().causal
    again = detect_layout(state, [each.numpy() for each in inputs], output, num_heads=HEADS)
    assert again.only() == found.only()


def test_an_output_of_nothing_but_its_bias_is_refused() -> None:
    state = write_weights(made(), "torch")
    with pytest.raises(ArgumentError, match="output is nothing but the output bias"):
        detect_layout(state, HIDDEN, state["out_proj.bias"].expand(2, 7, 24), num_heads=HEADS)
