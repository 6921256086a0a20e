"""How far rounding can carry the gradient of a sink, which is a sum of numbers that cancel."""

from __future__ import annotations

import torch
from torch import Tensor

from ..attention_cases import Case
from .gradient_formula import Formula, Upstream


def bound_of_sinks(case: Case, upstream: Upstream, factors: Tensor | None = None) -> Tensor:
    """Return the error that rounding may leave in the gradients of sinks, `[batch, num_heads]`.

    Such a gradient is `-sum over rows of share * (upstream . output - upstream of logsumexp)`. Its terms have
    either sign, so what is left of them says nothing of how far they are off. The bound is therefore made of
    the sizes of all that is added, to first order. With `moved` for how far rounding moves each score:

    - a row's logsumexp moves by the mean of `moved` over its weights, the sink's among them, and its share by
      that much of itself;
    - its output moves by each weight times its own move and that of logsumexp, times the value;
    - sums of n numbers are off by sqrt(n) roundings of the sum of their sizes (Higham and Mary 2019).

    Arithmetic is in float32; in 16 bits the output has been rounded once more.
    """
    formula = Formula(case, upstream, torch.float64, factors)
    weights, shares = formula.softmax
    moved, of_sink = _moved(formula)
    of_logsumexp = (weights * moved).sum(-1) + shares * of_sink
    # [batch, num_heads, seq_len, kv_len]: what each key adds to `upstream . output`, all of one sign
    terms = formula.dropped * formula.shown(formula.upstream.abs() @ formula.value.nan_to_num().abs().mT)
    total = terms.sum(-1) + (0.0 if formula.of_logsumexp is None else formula.of_logsumexp.abs())
    (seq_len, kv_len), width = weights.shape[2:], case.value.shape[3]
    roundings = seq_len**0.5 + kv_len**0.5 + width**0.5
    error = (of_logsumexp + roundings) * total + (terms * (moved + of_logsumexp[..., None])).sum(-1)
    error = _unit(torch.float32) * error
    if case.query.dtype is not torch.float32:
        outputs = formula.over_keys(formula.dropped, formula.value)
        error = error + _unit(case.query.dtype) * (formula.upstream * outputs).abs().sum(-1)
    return (shares * error).sum(-1)


def _moved(formula: Formula) -> tuple[Tensor, Tensor]:
    """Return how many roundings each score and each sink is off by, less the largest of its row."""
    assert formula.sinks is not None
    scores, sinks = formula.capped[0] + formula.bias, formula.sinks[..., 0]
    largest = torch.maximum(scores.masked_fill(~formula.visible, -torch.inf).amax(-1), sinks)
    products = abs(formula.scale) * (formula.query.abs() @ formula.key.nan_to_num().abs().mT)
    moved = (
        formula.query.shape[3] ** 0.5 * products + formula.bias.abs() + (scores - largest[..., None]).abs()
    )
    return formula.shown(moved), (sinks - largest).abs()


def _unit(dtype: torch.dtype) -> float:
    """Return how far the nearest number that `dtype` holds can be from one of size 1."""
    return torch.finfo(dtype).eps / 2
