"""What is allowed is what rounding can do, and no more."""

from __future__ import annotations

from math import inf, isinf

import pytest
import torch
from torch import Tensor

from headwise.verbs.check.asking import Form, Inputs, Projection, Projections, Role
from headwise.verbs.check.comparing import Distance, Question, worst
from headwise.verbs.check.compute import check_subject
from headwise.verbs.check.expected import Expected
from headwise.verbs.check.probes import Probe, ProbeMaker
from headwise.verbs.check.recipe import Computation, Recipe

from .made_subject import MadeSubject
from .recipe_subject import EQUAL_SIZES, INPUTS, OPTIONS, ROWS_CASE, projections, subject_by


def question(answer, *, spread: float = 1.0, **described) -> Question:
    """One question to a subject of heads; `answer` makes the answer of the right one."""
    subject = subject_by(Recipe(), takes=OPTIONS)
    inputs = ProbeMaker(subject, (), Expected(), seed=0).inputs(spread=spread)
    right = subject.answer(inputs, axes="bhqd").output
    return Question(subject, (), Probe("asked", "asked", inputs, **described), answer(right))


@pytest.mark.parametrize("spread", [1.0, 4.0, 150.0])
def test_float32_fits_and_little_else(spread):
    exact = question(lambda right: right, spread=spread)
    distance = exact.distance(Recipe())
    assert distance.fits
    off = question(lambda right: right * (1 + 1e-3), spread=spread)
    assert not off.distance(Recipe()).fits


def test_a_difference_of_a_hundred_thousandth_is_seen():
    off = question(lambda right: right + 1e-5 * right.abs().max())
    assert not off.distance(Recipe()).fits
    assert off.distance(Recipe()).allowed < 1e-5 * 4


def test_what_is_allowed_is_told_in_full_where_the_error_is_large():
    off = question(lambda right: right + 1.0)
    assert off.distance(Recipe(), in_full=True).allowed < 1e-4
    assert off.distance(Recipe(), in_full=True).error == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_what_is_not_finite_in_one_alone_never_fits(number):
    def broken(right: Tensor) -> Tensor:
        return right.index_fill(2, torch.tensor([3]), number)

    assert isinf(question(broken).distance(Recipe()).error)


def test_another_shape_never_fits():
    assert question(lambda right: right[..., :-1]).distance(Recipe()) == Distance(inf, 0.0)


def test_the_worst_is_the_one_nearest_beyond_its_limit():
    close, far, exact = Distance(1e-6, 2e-6), Distance(1e-5, 1e-4), Distance(0.0, 0.0)
    assert worst([far, close, exact]) == close
    assert worst([close, Distance(1e-9, 0.0)]) == Distance(1e-9, 0.0)
    assert not worst([]).fits


@pytest.mark.parametrize("hidden", [-1e9, -1e4, torch.finfo(torch.float32).min, -torch.inf])
@pytest.mark.parametrize("way", ["exp2", "float64 softmax", "key by key"])
def test_other_ways_to_be_right(hidden, way):
    """Masks of low numbers, powers of two, sums in another order: rounding, not faults."""

    def ask(inputs: Inputs) -> Tensor:
        key, value = (rows.repeat_interleave(2, dim=1) for rows in (inputs.key, inputs.value))
        scores = inputs.query * inputs.query.shape[-1] ** -0.5 @ key.mT
        mask = inputs.options.get(Role.MASK)
        if mask is not None:
            scores = scores + mask if mask.dtype != torch.bool else scores.masked_fill(~mask, hidden)
        if way == "float64 softmax":
            return torch.softmax(scores.double(), dim=-1).float() @ value
        raised = torch.exp2((scores - scores.amax(dim=-1, keepdim=True)) * 1.4426950408889634)
        if way == "exp2":
            return raised @ value / raised.sum(dim=-1, keepdim=True)
        summed = total = torch.zeros(())
        for place in reversed(range(value.shape[-2])):
            summed = summed + raised[..., place : place + 1] * value[..., place : place + 1, :]
            total = total + raised[..., place : place + 1]
        return summed / total

    result = check_subject(MadeSubject(ask, takes=INPUTS | {Role.MASK}), Expected())
    assert result.is_right, result


def in_bfloat16(maps: Projections) -> Projections:
    def rounded(one: Projection) -> Projection:
        return Projection(one.weight.bfloat16(), one.bias.bfloat16())

    return Projections(*(rounded(one) for one in (maps.query, maps.key, maps.value, maps.output)))


def test_a_module_in_sixteen_bits_is_held_to_its_own_digits():
    described, expected, right = ROWS_CASE
    readings = (in_bfloat16(projections(EQUAL_SIZES)),)

    def subject(recipe: Recipe) -> MadeSubject:
        def ask(inputs: Inputs) -> Tensor:
            made = Computation(
                form=Form.PROJECTED,
                sizes=EQUAL_SIZES,
                readings=readings,
                inputs=inputs,
                dtype=torch.bfloat16,
            )
            return made.answer(recipe).output

        return MadeSubject(ask, **{**described, "readings": readings})

    assert check_subject(subject(right), expected).is_right
    assert check_subject(subject(Recipe(scaling="missing")), expected).fault_names == ("scale-missing",)


def test_a_module_in_float32_is_not_let_off_with_sixteen_bits():
    described, expected, right = ROWS_CASE
    inner = subject_by(right, **described)
    rounding = MadeSubject(
        lambda inputs: inner.answer(inputs, axes="bqd").output.bfloat16().float(),
        **{**described, "readings": inner.readings},
    )
    assert not check_subject(rounding, expected).is_right
