"""What a case must give is recomputed here by plain torch in float64 and its autograd, of its own formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from headwise.verbs.check_machine.asking import Question, execute
from headwise.verbs.check_machine.case import Case
from headwise.verbs.check_machine.cases import CASES
from headwise.verbs.check_machine.exact import by_convention

from .fewer_cases import case_named

ROW_OF_1E9 = case_named("float mask", "a row of -1e9")


EVERY_CASE = [pytest.param(case, id=f"{case.group}: {case.name}") for case in CASES]


def tensors_of(case: Case) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    execute("; ".join(case.setup()), namespace)
    return namespace


def recomputed(case: Case, namespace: dict[str, Any]) -> dict[str, Tensor]:
    """Return the results, gradients by autograd."""
    visible = eval(case.whole_mask(), dict(namespace)) if case.has_mask else None  # noqa: S307 - the case's own
    shape = (case.batch, case.num_heads, case.seq_len, case.kv_len)
    leaves = {name: namespace[name].detach().double() for name in case.differentiated}
    options: dict[str, Any] = {"softcap": case.softcap, "sinks": namespace.get("sinks")}
    if "bias" in namespace:
        leaves["bias"] = namespace["bias"].detach().double()
    # What no row sees is taken out, so that 0 x NaN is nobody's.
    seen = torch.ones(shape, dtype=torch.bool) if visible is None else visible.expand(shape)
    heads = seen.any(2).unflatten(1, (case.num_kv_heads, -1)).any(2)[..., None]
    leaves["k"], leaves["v"] = (torch.where(heads, leaves[name], 0.0) for name in ("k", "v"))
    for leaf in leaves.values():
        leaf.requires_grad_()
    out, logsumexp = attention(leaves, seen, **options)
    results = {"out": out.detach(), "logsumexp": logsumexp.detach()}
    if case.wants == "gradients":
        found = torch.autograd.grad(
            out, [leaves[name] for name in case.differentiated], namespace["up"].double()
        )
        results |= {f"d{name}": each for name, each in zip(case.differentiated, found, strict=True)}
    return results


def attention(leaves: dict[str, Tensor], seen: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """Return plain attention over tensors alone."""
    query, key, value = leaves["q"], leaves["k"], leaves["v"]
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    scores = query @ key.mT / query.shape[-1] ** 0.5
    if options["softcap"] is not None:
        scores = options["softcap"] * torch.tanh(scores / options["softcap"])
    if "bias" in leaves:
        bias = leaves["bias"].expand(seen.shape)
        seen = seen & (bias != -torch.inf)
        # A row's largest bias is taken off it, which changes no weight and keeps the digits of the scores.
        bias = torch.where(seen, bias, 0.0)
        scores = scores + (bias - bias.amax(-1, keepdim=True))
    empty = ~seen.any(-1, keepdim=True)
    scores = scores.masked_fill(~seen, -torch.inf).masked_fill(empty, 0.0)
    if options["sinks"] is not None:
        column = options["sinks"].double()[:, None, None].expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, column], -1)
    weights = torch.softmax(scores, -1)[..., : key.shape[2]].masked_fill(empty, 0.0)
    # A value that is not finite counts in the rows that see it, and in no other.
    product = torch.where(seen[..., None], weights[..., None] * value[:, :, None], 0.0).sum(3)
    return product, torch.logsumexp(scores, -1).masked_fill(empty[..., 0], -torch.inf)


@pytest.mark.parametrize("case", EVERY_CASE)
def test_what_is_right_is_what_plain_torch_in_float64_computes(case: Case) -> None:
    question = Question(case)
    expected = recomputed(case, tensors_of(case))
    for name, found in question.exact.items():
        np.testing.assert_allclose(found, expected[name].numpy(), rtol=1e-9, atol=1e-9, err_msg=name)


def under(case: Case, name: str) -> dict[str, Any]:
    """Return what the case gives under a convention, by its name."""
    question = Question(case)
    (results,) = (
        results for known, results in by_convention(case, question.given, question.namespace) if known == name
    )
    return results


def softmax_of(scores: Tensor, namespace: dict[str, Any]) -> Any:
    return (torch.softmax(scores, -1).double() @ namespace["v"].double()).numpy()


def scores_of(namespace: dict[str, Any]) -> Tensor:
    scores: Tensor = namespace["q"] @ namespace["k"].mT / 4
    return scores


def test_upper_left() -> None:
    case = case_named("causal, rectangular", "5 queries, 11 keys")
    given = tensors_of(case)
    hidden = ~torch.ones(5, 11, dtype=torch.bool).tril()
    expected = softmax_of(scores_of(given).masked_fill(hidden, -torch.inf), given)
    np.testing.assert_allclose(under(case, "causal aligns to the upper left")["out"], expected, atol=1e-5)


def test_a_softmax_of_nothing_but_minus_infinity_and_one_of_a_large_negative_number() -> None:
    case = case_named("empty rows", "one row of a boolean mask")
    given = tensors_of(case)
    for filled, name in (
        (-torch.inf, "an empty row gives NaN"),
        (-1e9, "an empty row gives the mean of the values"),
    ):
        expected = softmax_of(scores_of(given).masked_fill(~given["mask"], filled), given)
        assert np.isnan(expected).any() == (filled == -torch.inf)
        np.testing.assert_allclose(under(case, name)["out"], expected, atol=1e-5)


def test_a_large_bias_added_in_float32() -> None:
    given = tensors_of(ROW_OF_1E9)
    expected = softmax_of(scores_of(given) + given["bias"], given)
    right = Question(ROW_OF_1E9).exact["out"]
    assert abs(expected - right).max() > 0.1
    np.testing.assert_allclose(
        under(ROW_OF_1E9, "a large bias swallows the scores")["out"], expected, atol=1e-5
    )


def test_a_bias_of_the_lowest_number_that_hides() -> None:
    case = case_named("float mask", "a row of the lowest number")
    hides = under(case, "a bias of the lowest number hides")["out"]
    right = Question(case).exact["out"]
    assert (hides[:, :, 2] == 0).all()
    np.testing.assert_array_equal(np.delete(hides, 2, axis=2), np.delete(right, 2, axis=2))
    lower = under(ROW_OF_1E9, "a bias of the lowest number hides")["out"]
    np.testing.assert_array_equal(lower, Question(ROW_OF_1E9).exact["out"])


def test_the_gradient_of_a_mean_over_hidden_keys_goes_to_the_values_alone() -> None:
    case = case_named("gradients, hard rows", "an empty row")
    given = tensors_of(case)
    leaves = [given[name].detach().double().requires_grad_() for name in ("q", "k", "v")]
    query, key, value = leaves
    scores = (query @ key.mT / 4).masked_fill(~given["mask"], -1e300)
    out = torch.softmax(scores, -1) @ value
    expected = torch.autograd.grad(out, leaves, given["up"].double())
    found = under(case, "an empty row gives the mean of the values")
    for name, gradient in zip(("dq", "dk", "dv"), expected, strict=True):
        np.testing.assert_allclose(found[name], gradient.numpy(), atol=1e-9)
