"""A subject made of a function of the tests: what `check` examines, without the search for its arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from headwise.errors import SubjectError
from headwise.verbs.check.asking import Answer, Form, Inputs, Projections, Role, Sizes

SIZES = Sizes(num_heads=6, num_kv_heads=3, head_dim=10, value_head_dim=4, d_model=35)
EQUAL_SIZES = Sizes(num_heads=3, num_kv_heads=3, head_dim=8, value_head_dim=8, d_model=24)

Asked = Callable[[Inputs], Tensor | Answer]


@dataclass(eq=False)
class MadeSubject:
    """Answers with `ask`, in the axes of its form; other axes are turned first and the answer back."""

    ask: Asked
    form: Form = Form.HEADS
    sizes: Sizes = SIZES
    takes: frozenset[Role] = frozenset({Role.QUERY, Role.KEY, Role.VALUE})
    axes: str | None = None
    is_module: bool = False
    lengths_may_differ: bool = True
    name: str = "made"
    readings: tuple[Projections, ...] = field(default=())

    def projections(self) -> tuple[Projections, ...]:
        return self.readings

    def answer(self, inputs: Inputs, *, axes: str) -> Answer:
        try:
            return self._answer(inputs, axes)
        except RuntimeError as error:
            raise SubjectError(f"{self.name} raised RuntimeError: {error}") from error

    def _answer(self, inputs: Inputs, axes: str) -> Answer:
        turn = (1, 2) if axes == "bqhd" else (0, 1)
        if axes in ("bhqd", "bqd"):
            return _as_answer(self.ask(inputs))
        turned = Inputs(
            *(rows.transpose(*turn) for rows in (inputs.query, inputs.key, inputs.value)),
            inputs.options,
            inputs.training,
        )
        found = _as_answer(self.ask(turned))
        return found._replace(output=found.output.transpose(*turn))


def _as_answer(found: Tensor | Answer) -> Answer:
    return found if isinstance(found, Answer) else Answer(found)
