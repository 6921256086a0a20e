"""The kernel's gradients of a case, and the checker that holds them to the formula."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headwise.ops import arguments, dropout, kernel, kernel_gradient
from headwise.ops.arguments import Call
from headwise.ops.results import Gradients, Wanted

from ..attention_cases import Case
from ..tolerance import assert_within_rule
from .bits import bits
from .gradient_formula import ByWeights, Formula, Upstream
from .sink_bound import bound_of_sinks

Differentiate = Callable[[Case, Upstream], Gradients]
NAMES = Gradients._fields
SEED = 2**62 + 11


def upstream_of(case: Case, *, logsumexp: bool = True, seed: int = 5) -> Upstream:
    """Return random gradients of what the case returns, in the dtypes it has them in."""
    generator = torch.Generator().manual_seed(seed)
    rows = case.query.shape[:3]
    output = torch.randn(*rows, case.value.shape[3], generator=generator).to(case.query.dtype)
    return Upstream(output, torch.randn(rows, generator=generator) if logsumexp else None)


def call_of(case: Case) -> Call:
    call = arguments.check(case.query, case.key, case.value, **case.options)
    return replace(call, seed=torch.tensor([SEED])) if call.dropout else call


def by_kernel(case: Case, upstream: Upstream, wanted: Sequence[str] | None = None) -> Gradients:
    """Return the kernel's gradients; without `wanted` all that there are."""
    call = call_of(case)
    there = {"query", "key", "value"}
    there |= {"bias"} if call.visibility.additive else set()
    there |= {"sinks"} if call.sinks is not None else set()
    asked = Wanted(**{name: name in (there if wanted is None else wanted) for name in Wanted._fields})
    attended = kernel.attend_for_gradient(call)
    return kernel_gradient.gradients(call, attended, *upstream, wanted=asked)


def by_formula(
    case: Case, upstream: Upstream, *, dtype: torch.dtype | None = None, kind: type[Formula] = Formula
) -> Gradients:
    """Return the gradients by formula, in the dtype of the call or another."""
    call = call_of(case)
    found = kind(case, upstream, dtype or case.query.dtype, _factors_of(case)).gradients
    bias, has_sinks = kernel.summed_bias(call)[0], case.options.get("sinks") is not None
    assert found.bias is not None
    return found._replace(
        bias=None if bias is None else found.bias.sum_to_size(bias.shape),
        sinks=found.sinks if has_sinks else None,
    )


def _factors_of(case: Case) -> Tensor | None:
    """Return what dropout multiplies the weights by."""
    call = call_of(case)
    return dropout.kept(call, slice(0, call.sizes.seq_len)) if call.dropout else None


def hold(case: Case, upstream: Upstream | None = None, *, differentiate: Differentiate = by_kernel) -> None:
    """Hold all gradients of a case to the formula in float64, within the one rule.

    The baseline is the worse of the two ways that people write the formula: on a few thousand numbers the
    largest error of either is a matter of luck. On the few numbers that are the gradients of sinks it still
    is, and in them much cancels: they are held to a bound of what rounding can do.
    """
    upstream = upstream_of(case) if upstream is None else upstream
    if "huge bias" in case.name:  # one key has all of the weight: a gradient of 0, and rounding
        hold_by_caps(case, upstream, differentiate=differentiate)
        return
    found = differentiate(case, upstream)
    exact = by_formula(case, upstream, dtype=torch.float64)
    plain = [by_formula(case, upstream, kind=kind) for kind in (Formula, ByWeights)]
    for name, *each in zip(NAMES[:4], found, exact, *plain, strict=False):
        _hold_one(f"gradient of {name}, {case.name}", case.query.dtype, *each)
    hold_sinks(case, upstream, found.sinks, exact.sinks)


def _hold_one(
    name: str, dtype: torch.dtype, found: Tensor | None, exact: Tensor | None, *plain: Tensor | None
) -> None:
    assert (found is None) == (exact is None), f"{name} is {found}"
    if found is not None and exact is not None:
        first, second = (each for each in plain if each is not None)
        is_worse = (first.double() - exact).abs() > (second.double() - exact).abs()
        # Bias and sinks of a call in 16 bits have theirs in float32: from numbers of 16 bits all the same.
        assert_within_rule(found.to(dtype), exact, torch.where(is_worse, first, second), name)


def hold_sinks(case: Case, upstream: Upstream, found: Tensor | None, exact: Tensor | None) -> None:
    """Hold gradients of sinks to those in float64, within what rounding can do."""
    name = f"gradient of sinks, {case.name}"
    assert (found is None) == (exact is None), f"{name} is {found}"
    if found is None or exact is None:
        return
    assert found.shape == exact.shape, f"{name} has shape {tuple(found.shape)}"
    finite = exact.isfinite()
    torch.testing.assert_close(
        found.double()[~finite], exact[~finite], equal_nan=True, msg=f"{name}: not finite differently"
    )
    bound = bound_of_sinks(case, upstream, _factors_of(case))
    error = (found.double() - exact).abs()
    assert (error <= bound)[finite].all(), f"{name} is off by {error.tolist()}; allowed is {bound.tolist()}"


def hold_by_caps(case: Case, upstream: Upstream, *, differentiate: Differentiate = by_kernel) -> None:
    """Hold gradients to the caps of the rule, beside the size of what the gradients are sums of.

    On few numbers the baseline is exact by luck, and a row of one key has a gradient of 0 to which nothing
    but rounding adds up.
    """
    found, exact = differentiate(case, upstream), by_formula(case, upstream, dtype=torch.float64)
    size = _size_of_terms(case, upstream).to(case.query.dtype).reshape(1)
    for field, one, other in zip(NAMES, found, exact, strict=True):
        name = f"gradient of {field}, {case.name}"
        assert (one is None) == (other is None), f"{name} is {one}"
        if one is not None and other is not None:
            assert one.shape == other.shape, f"{name} has shape {tuple(one.shape)}"
            beside, made_of = (torch.cat([each.ravel(), size.to(each.dtype)]) for each in (one, other))
            no_baseline = torch.full_like(made_of, torch.inf)
            assert_within_rule(beside.to(case.query.dtype), made_of, no_baseline, name)


def _size_of_terms(case: Case, upstream: Upstream) -> Tensor:
    """Return how large the numbers are that the gradients of the scores are differences of."""
    formula = Formula(case, upstream, torch.float64)
    terms = formula.softmax[0] * (formula.of_weights.abs() + formula.lowered_by.abs()[..., None])
    return terms.nan_to_num(0.0, 0.0, 0.0).sum(-1).amax() if terms.numel() else torch.zeros(())


def assert_same_gradients(found: Gradients, expected: Gradients, name: str) -> None:
    """Hold gradients to those expected, to the last bit; any NaN is as good as another."""
    for field, one, other in zip(NAMES, found, expected, strict=True):
        assert (one is None) == (other is None), f"{name}: {field} is {one}"
        if one is not None and other is not None:
            assert (one.dtype, one.shape) == (other.dtype, other.shape), f"{name}: {field} is of another kind"
            differs = (bits(one) != bits(other)) & ~(one.isnan() & other.isnan())
            count = int(differs.sum())
            assert not count, f"{name}: {field} differs in {count} of {one.numel()} places"


def without_gates(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that the kernel's backward pass knows: gates are multiplied outside of it."""
    return {name: option for name, option in options.items() if name != "head_gates"}
