"""The test cases of ONNX's Attention operator: somebody else's definition and expected values."""

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx.backend.test.case.node import collect_testcases
from torch import Tensor

from headwise import ops
from headwise.ops import AttentionResult

from .. import mutants
from ..attention_cases import laid_out
from ..mutants import Attend
from .onnx_adapter import run_node
from .ways import by_attention, computes

IMPLEMENTATIONS = ("cpu", "torch", "reference")
WAYS = {"attention": by_attention, "attention_with_logsumexp": ops.attention_with_logsumexp}
MUTANTS = (
    mutants.kv_heads_tiled,
    mutants.upper_left_for_lower_right,
    mutants.window_off_by_one,
    mutants.base_two_logsumexp,
    mutants.missing_scale,
    mutants.scale_from_the_model_width,
    mutants.swapped_heads,
    mutants.dropped_key,
    mutants.keys_read_past_the_end,
    mutants.mean_where_nothing_is_seen,
)


@dataclass(frozen=True)
class OnnxCase:
    name: str
    inputs: dict[str, Tensor]
    attributes: dict[str, Any]
    outputs: dict[str, Tensor]
    rtol: float
    atol: float


@cache  # a second call of collect_testcases would find every case twice
def onnx_cases() -> list[OnnxCase]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it imports the cases of all operators, and some of those overflow
        found = collect_testcases("Attention")
    return [_read(case) for case in found if "_expanded" not in case.name]


def _read(case: Any) -> OnnxCase:
    (node,) = case.model.graph.node
    ((inputs, outputs),) = case.data_sets
    expected = _by_name(node.output, outputs)
    return OnnxCase(
        case.name,
        _by_name(node.input, inputs),
        {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute},
        expected,
        case.rtol,
        _last_place(expected["Y"]) if expected["Y"].dtype == torch.bfloat16 else case.atol,
    )


def _last_place(expected: Tensor) -> float:
    """Return the unit in the last place of the largest value.

    ONNX's bfloat16 values come from weights and scores rounded to bfloat16, so they are off by as much
    themselves, whatever their own size; the suite's tolerance is smaller than a unit.
    """
    _, exponent = math.frexp(expected.abs().max().item())
    return math.ldexp(torch.finfo(expected.dtype).eps, exponent - 1)


def _by_name(names: list[str], arrays: list[np.ndarray]) -> dict[str, Tensor]:
    given = [name for name in names if name]
    return {name: _tensor(array) for name, array in zip(given, arrays, strict=True)}


def _tensor(array: np.ndarray) -> Tensor:
    if array.dtype.name == "bfloat16":  # a dtype of another package, which torch does not read
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def failures(attend: Attend, cases: list[OnnxCase], **options: Any) -> Iterator[str]:
    def among_nan(*tensors: Tensor, **rest: Any) -> AttentionResult:
        return attend(*(laid_out(tensor, "sliced") for tensor in tensors), **rest)

    for case in cases:
        found = run_node(case.inputs, case.attributes, list(case.outputs), attend=among_nan, **options)
        for name, expected in case.outputs.items():
            try:
                torch.testing.assert_close(found[name], expected, rtol=case.rtol, atol=case.atol)
            except AssertionError as error:
                yield f"{case.name}, {name}: {error}"


def test_all_93_cases_are_there() -> None:
    cases = onnx_cases()
    assert len(cases) == len({case.name for case in cases}) == 93
    dtypes = [case.outputs["Y"].dtype for case in cases]
    assert {dtype: dtypes.count(dtype) for dtype in set(dtypes)} == {
        torch.float32: 82,
        torch.float16: 6,
        torch.bfloat16: 5,
    }


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_every_case(impl: str, way: str) -> None:
    widest = torch.float64 if computes(impl, torch.float64) else torch.float32
    assert list(failures(partial(WAYS[way], impl=impl), onnx_cases(), widest=widest)) == []


def cases_for_mutants() -> list[OnnxCase]:
    """The cases in the dtype the mutants compute in, with heads to swap."""
    return [
        case
        for case in onnx_cases()
        if case.outputs["Y"].dtype == torch.float32 and case.inputs["Q"].shape[1] > 1
    ]


def test_what_the_mutants_are_made_from_passes() -> None:
    assert list(failures(mutants.sound, cases_for_mutants())) == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_cases_catch(mutant: Attend) -> None:
    assert any(failures(mutant, cases_for_mutants()))
