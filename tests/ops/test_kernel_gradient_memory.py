"""The backward pass takes memory that grows with the tokens, and not with their square."""

from __future__ import annotations

from ..memory_probe import peak_mebibytes

DIFFERENTIATED = """
from headwise.masks import Causal
from headwise.ops import arguments, kernel, kernel_gradient
from headwise.ops.results import Wanted
def inputs(length):
    return *torch.randn(4, 1, 1, length, 16), torch.zeros(1, length)
def run(query, key, value, upstream, bias):
    call = arguments.check(query, key, value, mask=Causal(), bias=bias, sinks=torch.zeros(1))
    attended = kernel.attend_for_gradient(call)
    return kernel_gradient.gradients(call, attended, upstream, None, wanted=Wanted(*[True] * 5))
"""


def test_memory_grows_with_the_tokens() -> None:
    """All weights would be 1 GiB at 16,384 tokens, and four times those at 8,192."""
    short, long = (peak_mebibytes(DIFFERENTIATED, length) for length in (8192, 16384))
    assert long < 24.0
    assert long < 2.5 * short
