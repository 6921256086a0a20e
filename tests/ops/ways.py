"""The ways into the operator, by named implementations, each called as `attention_with_logsumexp` is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from headwise import masks, ops
from headwise.errors import UnsupportedError
from headwise.masks import Dense
from headwise.ops import AttentionResult, Implementation

from ..attention_cases import Case, assert_attends
from .bits import assert_same_bits

Way = Callable[..., AttentionResult]


def by_attention(*tensors: Tensor, impl: Implementation = "torch", **options: Any) -> AttentionResult:
    """The output of `attention`, which with torch is fused where it may be; it gives no logsumexp."""
    logsumexp = ops.attention_with_logsumexp(*tensors, impl=impl, **options).logsumexp
    return AttentionResult(ops.attention(*tensors, impl=impl, **options), logsumexp)


def by_plain_torch(*tensors: Tensor, **options: Any) -> AttentionResult:
    return ops.attention_with_logsumexp(*tensors, impl="torch", **options)


def by_observe(*tensors: Tensor, **options: Any) -> AttentionResult:
    found = ops.observe(*tensors, **options)
    return AttentionResult(found.output, found.logsumexp)


def by_reference(*tensors: Tensor, **options: Any) -> AttentionResult:
    return ops.attention_with_logsumexp(*tensors, impl="reference", **options)


def by_kernel(*tensors: Tensor, **options: Any) -> AttentionResult:
    """The CPU kernel; without logsumexp it must give the same output, bit for bit."""
    found = ops.attention_with_logsumexp(*tensors, impl="cpu", **options)
    alone = ops.attention(*tensors, impl="cpu", **options)
    assert_same_bits(AttentionResult(alone, found.logsumexp), found, "attention without logsumexp")
    return found


WAYS: dict[str, Way] = {
    "torch": by_attention,
    "plain torch": by_plain_torch,
    "cpu": by_kernel,
    "observe": by_observe,
    "reference": by_reference,
}
DIFFERENTIABLE = ("torch", "plain torch", "cpu", "observe")
WITHOUT_FLOAT64 = ("cpu",)
"""Ways, and implementations, that refuse float64; tests/ops/test_choice.py holds them to it."""


def computes(name: str, dtype: torch.dtype) -> bool:
    """Return whether the way or implementation `name` takes tensors of this dtype."""
    return not (name in WITHOUT_FLOAT64 and dtype == torch.float64)


def takes(way: Way, query: Tensor, options: dict[str, Any]) -> bool:
    """Return whether `way` takes such a call.

    The kernel has no float64, and no sinks where there are several biases or one in float64. This is the one
    list of what tests leave out for it; `hold` shows that all of it is refused.
    """
    sums = [part for each in ("mask", "bias") for part in _float_parts(options.get(each))]
    is_summed = len(sums) > 1 or any(part.tensor.dtype == torch.float64 for part in sums)
    is_refused = query.dtype == torch.float64 or (is_summed and options.get("sinks") is not None)
    return way is not by_kernel or not is_refused


def hold(way: Way, case: Case) -> bool:
    """Hold `way` to the reference on `case`, or to its refusal; return whether it took the case."""
    if takes(way, case.query, case.options):
        assert_attends(way, case)
        return True
    with pytest.raises(UnsupportedError, match=r'impl="cpu" cannot .*(float64: the|sinks beside several)'):
        way(case.query, case.key, case.value, **case.options)
    return False


def weights_of(way: Way, query: Tensor, key: Tensor, **options: Any) -> Tensor:
    """Return the weights that `way` uses: its output where the value is the identity."""
    identity = torch.eye(key.shape[2], dtype=key.dtype).expand(*key.shape[:3], key.shape[2])
    parts = identity.split(256, dim=3)  # as wide as the CPU kernel goes
    return torch.cat([way(query, key, part, **options).output for part in parts], dim=3)


def _float_parts(given: Any) -> list[Dense]:
    parts = () if given is None else masks.as_mask(given).parts
    return [part for part in parts if isinstance(part, Dense) and not part.is_boolean]


def over(names: Sequence[str]) -> pytest.MarkDecorator:
    """Return the parametrization of a test over these ways."""
    return pytest.mark.parametrize("way", [WAYS[name] for name in names], ids=names)


every_way = over([*WAYS])
every_way_in_float64 = over([name for name in WAYS if computes(name, torch.float64)])
differentiable_ways = over(DIFFERENTIABLE)
