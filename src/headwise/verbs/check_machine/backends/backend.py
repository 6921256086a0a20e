"""What a backend is: something that can be called in one line of Python."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from headwise.models.short_cause import short_cause
from headwise.verbs.check_machine.case import Case


@dataclass(frozen=True)
class Form:
    """One way to ask a backend.

    - name: what sets it apart from the backend's other forms; empty if there is one
    - statements: they make `out`, and `logsumexp`, `dq`, `dk`, `dv` and `dbias` where the case wants them
    """

    name: str
    statements: tuple[str, ...]

    @property
    def source(self) -> str:
        """All of it in one line."""
        return "; ".join(self.statements)


class Backend(ABC):
    """One way to compute attention.

    - name: its key in results
    - label: its heading in a table
    - libraries: modules that it needs, each with the name a reader knows
    - refusals: errors by which it says that it does not do something; any other is a fault
    - is_compiled: whether each case takes it seconds to compile
    """

    name: ClassVar[str]
    label: ClassVar[str]
    libraries: ClassVar[dict[str, str]] = {}
    refusals: ClassVar[tuple[type[Exception], ...]] = (Exception,)
    is_compiled: ClassVar[bool] = False

    @abstractmethod
    def forms(self, case: Case) -> Iterator[Form]:
        """Yield the ways in which the backend is asked a case.

        Raises:
            CannotRunError: it has none.

        """

    def tidy(self) -> None:
        """Undo what a line leaves behind in the process, so that the next finds it as a new one would be."""
        torch.set_grad_enabled(True)

    def gist(self, error: Exception) -> str:
        """Return what an error of this backend says, in one line."""
        return short_cause(error)

    @property
    def home(self) -> str:
        """Where another process finds this class."""
        return f"{type(self).__module__}:{type(self).__qualname__}"


def torch_gradients(case: Case) -> Iterator[str]:
    """Yield the statement that takes gradients by torch, where the case wants them."""
    if case.wants == "gradients":
        names = ", ".join(gradient_names(case))
        yield f"{names} = torch.autograd.grad(out, ({', '.join(case.differentiated)}), up)"


def gradient_names(case: Case) -> tuple[str, ...]:
    """Return the names of the gradients, in the order of what is differentiated."""
    return tuple(f"d{name}" for name in case.differentiated)
