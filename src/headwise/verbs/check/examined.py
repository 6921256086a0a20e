"""One subject, asked everything in one order of axes."""

from __future__ import annotations

from dataclasses import dataclass

from headwise.verbs.check.asking import Projections, Subject
from headwise.verbs.check.comparing import Question
from headwise.verbs.check.dropout import Steadiness
from headwise.verbs.check.interview import Asked
from headwise.verbs.check.naming import Search, Solution
from headwise.verbs.check.probes import ProbeMaker


@dataclass(frozen=True, eq=False)
class Examined:
    """One subject, asked everything in one order of axes.

    - steadiness: how it is asked
    - make: makes more questions
    - asked, questions: what was asked, and what of it was answered
    - solution: the conventions under which every answer is right, or None
    """

    subject: Subject
    axes: str
    readings: tuple[Projections, ...]
    steadiness: Steadiness
    make: ProbeMaker
    asked: list[Asked]
    questions: list[Question]
    search: Search
    solution: Solution | None
