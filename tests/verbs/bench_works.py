"""Works small enough for a test, one of every kind, and a backend that a test can bend."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from headwise import ops
from headwise.verbs.bench.backends import Backend, Prepared
from headwise.verbs.bench.problem import Problem
from headwise.verbs.bench.works import Work

FULL = Work("full", 2, 4, 4, 37, 37, 16)
CAUSAL = Work("causal", 1, 4, 4, 53, 53, 16, causal=True)
GQA = Work("gqa", 1, 6, 2, 41, 41, 16, causal=True)
WINDOW = Work("window", 1, 2, 2, 149, 149, 16, causal=True, window=19)
PADDED = Work("padded", 3, 2, 2, 61, 61, 16, lengths=(7, 31, 61))
DECODE = Work("decode", 1, 6, 2, 1, 131, 16)
DECODE_MHA = Work("decode-mha", 1, 4, 4, 1, 131, 16)
BFLOAT16 = Work("bf16", 1, 4, 4, 53, 53, 16, causal=True, dtype="bfloat16")
EVERY_KIND = (FULL, CAUSAL, GQA, WINDOW, PADDED, DECODE, DECODE_MHA, BFLOAT16)


class Bent(Backend):
    """Attention whose output is bent before it is returned, or which fails."""

    def __init__(self, name: str, bend: Callable[[Tensor], Tensor] = lambda output: output) -> None:
        self.name = self.label = name  # type: ignore[misc]  # one class, several names
        self.bend = bend

    def prepare(self, problem: Problem, threads: int) -> Prepared:
        def call() -> Tensor:
            return ops.attention(problem.query, problem.key, problem.value, mask=problem.mask)

        return Prepared(call=call, output=self.bend, form="bent")
