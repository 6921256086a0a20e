"""A block is compiled as one graph, forward and backward, whatever the length, and computes the same."""

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from compile import passed
from gpt import D_MODEL, Block
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend


@pytest.fixture(autouse=True)
def forgotten() -> None:
    torch.compiler.reset()


def assert_same(found: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_it_prints_how_little_compiling_changes(run: Callable[..., str]) -> None:
    found = re.findall(r"(\d+) tokens: output off by (\S+), gradients by (\S+) at most", run("compile.py"))
    assert [int(seq_len) for seq_len, _, _ in found] == [128, 97, 61]
    assert all(float(output) < 1e-5 and float(gradient) < 1e-4 for _, output, gradient in found)


@pytest.mark.parametrize("variant", [{"num_kv_heads": 4, "window": None}, {"num_kv_heads": 1, "window": 5}])
def test_a_block_is_one_graph_for_every_length(variant: dict[str, Any]) -> None:
    block, counter = Block(**variant), CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(copy.deepcopy(block), fullgraph=True, backend=counter)
    for seq_len in (17, 31, 257):
        given = torch.randn(2, seq_len, D_MODEL)
        assert_same(passed(compiled, given), passed(block, given))
    # One for the first length, and one for all others.
    assert counter.frame_count == 2
