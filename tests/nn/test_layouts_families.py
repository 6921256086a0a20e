"""Weights of every framework and family, held to what its own module gives for an input."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from headwise.errors import ArgumentError
from headwise.nn import MultiHeadAttention
from headwise.nn.layouts import LAYOUTS, detect_layout, read_weights, write_weights
from headwise.nn.layouts.conversion import as_tensor
from headwise.nn.layouts.forward import attend

from .test_layouts_numbers.cases import CASES, Case

TOLERANCE = 1e-5
"""Of the largest number in the output: the modules compute in float32."""


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    with torch.no_grad():
        yield CASES[request.param]()


def error(found: Tensor, output: Tensor) -> float:
    return float((found - output).abs().max() / output.abs().max())


def test_every_layout_is_held_to_a_module() -> None:
    built = {"headwise"} | {make().layout for make in CASES.values()}  # headwise's own: test_layouts.py
    assert built == set(LAYOUTS)


def test_the_documentation_lists_every_layout() -> None:
    text = (Path(__file__).parents[2] / "docs" / "layouts.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE) == list(LAYOUTS)


def test_the_weights_read_give_what_the_module_gives(case: Case) -> None:
    weights = read_weights(case.state, case.layout, **case.heads, rotary_dim=case.rotary_dim)
    found = attend(weights, case.inputs, **case.options)
    assert found.shape == case.output.shape
    assert error(found, case.output) < TOLERANCE


def test_a_headwise_layer_with_the_weights_gives_what_the_module_gives(case: Case) -> None:
    weights = read_weights(
        case.state, case.layout, **case.heads, rotary_dim=case.rotary_dim
    ).with_all_biases()
    if weights.out.shape[2] != weights.d_model:
        with pytest.raises(ArgumentError, match="the output is 8 wide and the input 12"):
            write_weights(weights, "headwise")
        return
    layer = MultiHeadAttention(
        weights.d_model,
        weights.heads.num_heads,
        num_kv_heads=weights.heads.num_kv_heads,
        head_dim=weights.heads.head_dim,
        value_head_dim=weights.heads.value_head_dim,
        key_dim=weights.key.shape[2],
        value_dim=weights.value.shape[2],
        rope=case.options.get("rope"),
    )
    layer.load_state_dict(write_weights(weights, "headwise"), strict=True)
    # Without key and value where there are no others, since rotary positions are for self-attention.
    inputs = case.inputs if "rope" not in case.options else case.inputs[:1]
    found = layer(*inputs, mask=case.options.get("mask"), bias=case.options.get("bias"))
    assert error(found, case.output) < TOLERANCE


def test_what_is_written_is_the_state_bit_for_bit(case: Case) -> None:
    weights = read_weights(case.state, case.layout, **case.heads, rotary_dim=case.rotary_dim)
    written = write_weights(weights, case.layout, rotary_dim=case.rotary_dim)
    stored = {name for name in case.state if name not in LAYOUTS[case.layout].skipped}
    assert set(written) == stored
    for name, tensor in written.items():
        assert torch.equal(tensor, as_tensor(name, case.state[name])), name
        assert tensor.is_contiguous(), name
    assert len({tensor.untyped_storage().data_ptr() for tensor in written.values()}) == len(written)
    again = read_weights(written, case.layout, **case.heads, rotary_dim=case.rotary_dim)
    assert again.identical(weights)
    if case.module is not None:
        case.module.load_state_dict(written, strict=True)


def test_detection_names_the_layout_and_the_mask(case: Case) -> None:
    options = dict(case.options)
    causal = options.pop("mask", None) is not None
    found = detect_layout(
        case.state,
        case.inputs,
        case.output,
        **case.heads,
        bias=options.get("bias"),
        rope=options.get("rope"),
    )
    fit = found.only()
    assert case.layout in fit.layouts
    assert fit.causal is causal
    assert fit.error < TOLERANCE
    assert all(other.error > 1e-2 for other in found.tried[1:]), str(found)
