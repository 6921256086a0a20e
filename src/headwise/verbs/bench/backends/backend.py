"""What a backend is: something that makes a problem ready to be called again and again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from headwise.verbs.bench.problem import Problem
from headwise.verbs.libraries import CannotRunError

# What plain attention holds at once: scores, their exponentials or a mask of their size, and weights.
SCORE_COPIES = 3
MEMORY_LEFT_FREE = 2**30

# Idle threads of OpenMP, and of ONNX Runtime as it is told to, spin for some milliseconds before they sleep.
PAUSE_SECONDS = 0.01


@dataclass(frozen=True)
class Prepared:
    """A problem in the form that a backend takes.

    - call: computes it once; nothing is kept from one call to the next
    - output: turns what `call` returned into a tensor `[batch, num_heads, seq_len, head_dim]`
    - form: the function or operator that computes it
    - around: entered before each call and left after it, untimed
    """

    call: Callable[[], Any]
    output: Callable[[Any], Tensor]
    form: str
    around: Callable[[], AbstractContextManager[Any]] = nullcontext


class Backend(ABC):
    """One way to compute attention.

    - name: its key in results
    - label: its heading in a table
    """

    name: ClassVar[str]
    label: ClassVar[str]

    @abstractmethod
    def prepare(self, problem: Problem, threads: int) -> Prepared:
        """Return the problem ready to be computed on this many threads.

        Raises:
            CannotRunError: the library is missing, or has no form of this work.

        """


def refuse_too_many_scores(problem: Problem) -> None:
    """Refuse to store every score of the problem where memory is short of it.

    Raises:
        CannotRunError: there is too little memory.

    """
    needed, free = SCORE_COPIES * problem.score_bytes + MEMORY_LEFT_FREE, free_memory()
    if free is not None and needed > free:
        raise CannotRunError(
            f"it stores every score: that takes {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free"
        )


def free_memory() -> int | None:
    """Return the bytes that new programs can have, as Linux tells them; None elsewhere."""
    told = Path("/proc/meminfo")
    lines = told.read_text(encoding="ascii").splitlines() if told.exists() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), None)
