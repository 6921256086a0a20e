"""headwise itself: the thing that is examined."""

from __future__ import annotations

from typing import ClassVar

from headwise import ops
from headwise.verbs.bench.backends.backend import Backend, Prepared
from headwise.verbs.bench.problem import Problem

IMPL: ops.Implementation = "cpu"


class HeadwiseOps(Backend):
    """`headwise.attention` as a user calls it, mask object and all."""

    name: ClassVar[str] = "headwise"
    label: ClassVar[str] = "headwise"

    def prepare(self, problem: Problem, threads: int) -> Prepared:
        """Return the call; it follows torch's number of threads."""
        query, key, value, mask = problem.query, problem.key, problem.value, problem.mask
        choice = ops.choose(query, key, value, mask=mask, impl=IMPL)
        return Prepared(
            call=lambda: ops.attention(query, key, value, mask=mask, impl=IMPL),
            output=lambda found: found,
            form=f"headwise.attention, impl={choice.impl!r}, path {choice.path!r}",
        )
