"""A subject is asked, in each order of axes that is possible, until its answers are right in one."""

from __future__ import annotations

from headwise.counts import either
from headwise.errors import ArgumentError, SubjectError
from headwise.verbs.check.asking import Answer, Form, Inputs, Subject
from headwise.verbs.check.choices import Choices
from headwise.verbs.check.comparing import Question
from headwise.verbs.check.dropout import steadiness
from headwise.verbs.check.examined import Examined
from headwise.verbs.check.expected import Expected
from headwise.verbs.check.interview import interview, order_matters
from headwise.verbs.check.naming import Search
from headwise.verbs.check.probes import ProbeMaker, probes_for

_AXES_OF = {Form.HEADS: ("bhqd", "bqhd"), Form.WIDTH: ("bqd", "qbd"), Form.PROJECTED: ("bqd", "qbd")}


def examine(subject: Subject, expected: Expected, seed: int) -> Examined:
    """Return the subject asked in the order of axes in which it is right, or else in the usual one.

    Raises:
        ArgumentError: the axes that were declared are not of this form.
        SubjectError: it cannot be asked in any.

    """
    found: list[Examined] = []
    refusals: list[SubjectError] = []
    for axes in _possible_axes(subject, expected):
        try:
            found.append(_asked_in(axes, subject, expected, seed))
        except SubjectError as fault:
            refusals.append(fault)
            continue
        if found[-1].solution is not None:
            return found[-1]
    if not found:
        raise refusals[0]
    return found[0]


def _possible_axes(subject: Subject, expected: Expected) -> tuple[str, ...]:
    known = _AXES_OF[subject.form]
    if expected.axes is not None:
        if expected.axes not in known:
            kinds = either([f'"{axes}"' for axes in known])
            raise ArgumentError(
                f'axes="{expected.axes}" does not fit {subject.name}, which is given '
                f"{'heads' if subject.form is Form.HEADS else 'rows'}; pass {kinds}"
            )
        return (expected.axes,)
    if subject.axes is not None:
        return (subject.axes,)
    # Rows come batch first unless something says otherwise; heads come in two orders, both in wide use.
    return known if subject.form is Form.HEADS else known[:1]


def _asked_in(axes: str, subject: Subject, expected: Expected, seed: int) -> Examined:
    def ask(inputs: Inputs) -> Answer:
        return subject.answer(inputs, axes=axes)

    readings = subject.projections()
    make = ProbeMaker(subject, readings, expected, seed)
    probes = probes_for(subject, expected, make)
    steady = steadiness(ask, probes[0].inputs)
    asked = interview(steady.ask, probes)
    questions = [
        Question(subject, readings, each.probe, each.answer.output)
        for each in asked
        if each.answer is not None
    ]
    choices = Choices(
        subject,
        expected,
        readings=len(readings),
        boolean_masks=any(question.probe.name == "mask" for question in questions),
        order_matters=order_matters(steady.ask, asked[0].probe),
    )
    search = Search(questions, choices)
    return Examined(subject, axes, readings, steady, make, asked, questions, search, search.right())
