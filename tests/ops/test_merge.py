from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck

from headwise import ops
from headwise.errors import ArgumentError
from headwise.masks import Causal
from headwise.ops import AttentionResult

from ..attention_cases import KINDS, Case, assert_attends, tensors


def in_parts(cuts: list[int]) -> Any:
    """Return an operator that attends to the keys between the `cuts` apart and merges."""

    def attend(query: Tensor, key: Tensor, value: Tensor, *, mask: Tensor) -> AttentionResult:
        edges = [0, *cuts, key.shape[2]]
        parts = [
            ops.attention_with_logsumexp(
                query, key[:, :, start:stop], value[:, :, start:stop], mask=mask[..., start:stop]
            )
            for start, stop in pairwise(edges)
        ]
        return ops.merge([part.output for part in parts], [part.logsumexp for part in parts])

    return attend


@settings(max_examples=60, derandomize=True, deadline=None)
@given(
    cuts=st.lists(st.integers(0, 13), max_size=4).map(sorted),
    kind=st.sampled_from(KINDS),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 99),
)
def test_parts_merge_into_the_whole(cuts: list[int], kind: str, dtype: torch.dtype, seed: int) -> None:
    made = tensors(kind, kv_len=13, dtype=dtype, seed=seed)
    mask = torch.rand(2, 1, 5, 13, generator=torch.Generator().manual_seed(seed)) < 0.3
    assert_attends(in_parts(cuts), Case(f"cut at {cuts}", *made, {"mask": mask}))


def test_an_empty_part_adds_nothing_not_even_nan() -> None:
    whole = ops.attention_with_logsumexp(*tensors("randn"))
    garbage = torch.full_like(whole.output, torch.nan)
    nothing = torch.full_like(whole.logsumexp, -torch.inf)
    for order in (1, -1):
        merged = ops.merge([whole.output, garbage][::order], [whole.logsumexp, nothing][::order])
        assert torch.equal(merged.output, whole.output)
        torch.testing.assert_close(merged.logsumexp, whole.logsumexp)


def test_nothing_and_nothing_is_nothing() -> None:
    output, logsumexp = torch.zeros(1, 1, 2, 3), torch.full((1, 1, 2), -torch.inf)
    merged = ops.merge([output, output], [logsumexp, logsumexp])
    assert (merged.output == 0).all()
    assert (merged.logsumexp == -torch.inf).all()


def test_one_part_is_the_whole() -> None:
    part = ops.attention_with_logsumexp(*tensors("randn"), mask=Causal())
    merged = ops.merge([part.output], [part.logsumexp])
    assert torch.equal(merged.output, part.output)
    torch.testing.assert_close(merged.logsumexp, part.logsumexp)


def test_parts_of_very_different_weight_do_not_overflow() -> None:
    output = torch.tensor([1.0, 2.0]).reshape(2, 1, 1, 1, 1)
    logsumexp = torch.tensor([1e4, -1e4]).reshape(2, 1, 1, 1)
    merged = ops.merge(list(output), list(logsumexp))
    assert (merged.output.item(), merged.logsumexp.item()) == (1.0, 1e4)


def test_sixteen_bit_parts_merge_in_float32_and_round_once() -> None:
    made = tensors("randn", dtype=torch.bfloat16)
    first = ops.attention_with_logsumexp(*made, mask=(torch.arange(7) < 3)[None])
    second = ops.attention_with_logsumexp(*made, mask=(torch.arange(7) >= 3)[None])
    merged = ops.merge([first.output, second.output], [first.logsumexp, second.logsumexp])
    assert merged.output.dtype == torch.bfloat16
    assert merged.logsumexp.dtype == torch.float32
    wide = ops.merge([first.output.float(), second.output.float()], [first.logsumexp, second.logsumexp])
    assert torch.equal(merged.output, wide.output.bfloat16())


def test_merging_has_gradients_empty_rows_included() -> None:
    outputs = [torch.randn(1, 2, 3, 2, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    logsumexps = [torch.randn(1, 2, 3, dtype=torch.float64) for _ in range(3)]
    logsumexps[1][:, :, 1] = -torch.inf
    for logsumexp in logsumexps:
        logsumexp[:, :, 2] = -torch.inf
        logsumexp.requires_grad_()

    def merge(*parts: Tensor) -> tuple[Tensor, Tensor]:
        merged = ops.merge(parts[:3], parts[3:])
        return merged.output, merged.logsumexp.masked_fill(merged.logsumexp == -torch.inf, 0.0)

    assert gradcheck(lambda *given: merge(*given, *logsumexps), outputs)
    total = sum(part.sum() for part in merge(*outputs, *logsumexps))
    gradients = torch.autograd.grad(total, logsumexps)
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert all((gradient[:, :, 2] == 0).all() for gradient in gradients)


def test_merged_attention_has_the_gradient_of_the_whole() -> None:
    made = [tensor.double().requires_grad_() for tensor in tensors("randn")]
    mask = torch.rand(2, 6, 5, 7) < 0.6
    upstream = torch.randn(2, 6, 5, 11, dtype=torch.float64)
    found = torch.autograd.grad(in_parts([2, 5])(*made, mask=mask).output, made, upstream)
    expected = torch.autograd.grad(ops.attention(*made, mask=mask), made, upstream)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("outputs", "logsumexps", "message"),
    [
        ([], [], "merge got 0 outputs and 0 logsumexps; give one of each per part, and at least one part"),
        ([torch.zeros(2, 3)], [], "merge got 1 outputs and 0 logsumexps"),
        (
            [torch.zeros(2, 3)],
            [torch.zeros(3)],
            r"part 0 has output \(2, 3\) torch.float32 and logsumexp \(3,\)",
        ),
        (
            [torch.zeros(2, 3), torch.zeros(2, 4)],
            [torch.zeros(2)] * 2,
            r"part 1 has output \(2, 4\) .*, part 0 has output \(2, 3\) .* all parts must have the same",
        ),
        (
            [torch.zeros(2, 3)] * 2,
            [torch.zeros(2), torch.zeros(2, dtype=torch.float64)],
            r"part 1 has .* logsumexp \(2,\) torch.float64, part 0 has .* torch.float32; all parts must have",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused(
    outputs: list[Tensor], logsumexps: list[Tensor], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        ops.merge(outputs, logsumexps)
