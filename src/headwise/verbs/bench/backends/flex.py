"""FlexAttention, compiled by torch; it needs a C++ compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from headwise.verbs.bench.backends.backend import Backend, Prepared
from headwise.verbs.bench.problem import Problem
from headwise.verbs.bench.works import Work
from headwise.verbs.libraries import CannotRunError

MaskFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


class FlexAttention(Backend):
    """`flex_attention` with a block mask, compiled for the sizes of each work."""

    name: ClassVar[str] = "flex_attention"
    label: ClassVar[str] = "Flex"

    def prepare(self, problem: Problem, threads: int) -> Prepared:
        """Return the compiled call.

        Raises:
            CannotRunError: torch cannot compile here.

        """
        work = problem.work
        # What was compiled for other works would be looked through in every call, and has a limit.
        torch.compiler.reset()
        visible = mask_function(work)
        block_mask = (
            None
            if visible is None
            else create_block_mask(visible, work.batch, None, work.seq_len, work.kv_len, device="cpu")
        )
        compiled = torch.compile(flex_attention, dynamic=False, fullgraph=True)

        def call() -> Any:
            return compiled(
                problem.query,
                problem.key,
                problem.value,
                block_mask=block_mask,
                enable_gqa=work.num_kv_heads != work.num_heads,
            )

        try:
            call()
        except Exception as error:  # the compiler of torch has no one kind of error
            if "InvalidCxxCompiler" in repr(error):
                raise CannotRunError("torch.compile found no working C++ compiler; install g++") from error
            raise
        return Prepared(
            call=call,
            output=lambda found: found,
            form="torch.nn.attention.flex_attention, compiled, block mask made beforehand",
        )


def mask_function(work: Work) -> MaskFunction | None:
    """Return the work's mask as FlexAttention asks for it, or None if every query sees every key."""
    if work.window is not None:
        window = work.window
        return lambda batch, head, query, key: (query >= key) & (query - key < window)
    if work.lengths is not None:
        lengths = torch.tensor(work.lengths)
        return lambda batch, head, query, key: key < lengths[batch]
    return (lambda batch, head, query, key: query >= key) if work.causal else None
