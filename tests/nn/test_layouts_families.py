"""Weights of every framework and family, held to what its own module gives for an input."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

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


def test_the_weights_read_give_what_the_module_gives(case: Case) -> None:
    weights = read_weights(case.state, case.layout, **case.heads, rotary_dim=case.rotary_dim)
    found = attend(weights, case.inputs, **case.options)
    assert found.shape == case.output.shape
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
        rotary_angles=options.get("angles"),
    )
    fit = found.only()
    assert case.layout in fit.layouts
    assert fit.causal is causal
    assert fit.error < TOLERANCE
    assert all(other.error > 1e-2 for other in found.tried[1:]), str(found)
