"""FlexAttention, compiled by torch; it needs a C++ compiler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch

from headwise.verbs.check_machine.backends.backend import Backend, Form
from headwise.verbs.check_machine.case import Case
from headwise.verbs.libraries import CannotRunError


class FlexAttention(Backend):
    """`flex_attention` with a block mask of the case's own words, and a score function for what is added."""

    name: ClassVar[str] = "flex_attention"
    label: ClassVar[str] = "Flex"
    is_compiled: ClassVar[bool] = True

    def forms(self, case: Case) -> Iterator[Form]:
        """Yield the compiled call.

        Raises:
            CannotRunError: the function has no form of the case.

        """
        if case.sinks:
            raise CannotRunError("no sinks")
        given = ["q, k, v"]
        if case.has_mask:
            shape = f"{case.full_shape}, device='cpu'"
            given.append(f"block_mask=create_block_mask(lambda b, h, i, j: {_visible(case)}, {shape})")
        if case.bias is not None or case.softcap is not None:
            given.append(f"score_mod=lambda s, b, h, i, j: {_score(case)}")
        if case.is_grouped:
            given.append("enable_gqa=True")
        if case.wants == "logsumexp":
            given.append("return_lse=True")
        made = "out, logsumexp" if case.wants == "logsumexp" else "out"
        imported = "from torch.nn.attention.flex_attention import create_block_mask, flex_attention"
        call = f"{made} = torch.compile(flex_attention, dynamic=False)({', '.join(given)})"
        yield Form("", (imported, *case.setup(), *_tables(case), call))

    def gist(self, error: Exception) -> str:
        """Return what the compiler of torch says, and what mends it where there is none for C++."""
        if "InvalidCxxCompiler" in repr(error):
            return "torch.compile found no working C++ compiler; install g++"
        return super().gist(error)

    def tidy(self) -> None:
        """Forget what was compiled: torch gives up on a function after some compilations."""
        super().tidy()
        torch.compiler.reset()


def _tables(case: Case) -> Iterator[str]:
    """Yield what makes the tensors a mask looks up: torch compiles none that a mask function makes itself."""
    if case.right_padded is not None:
        yield f"real = torch.tensor({[*case.right_padded]})"
    if case.left_padded is not None:
        yield f"first = torch.tensor({[case.kv_len - real for real in case.left_padded]})"
    if case.documents is not None:
        numbers = [number for number, length in enumerate(case.documents) for _ in range(length)]
        yield f"document = torch.tensor({numbers})"
    if case.visible is not None:
        yield f"mask = mask.expand({case.full_shape})"
    if case.bias is not None:
        yield f"bias = bias.expand({case.full_shape})"


def _visible(case: Case) -> str:
    """Return whether query `i` sees key `j`, as FlexAttention asks for it."""
    offset = case.kv_len - case.seq_len
    own = f"i + {offset}" if offset > 0 else f"i - {-offset}" if offset < 0 else "i"
    parts = []
    if case.causal:
        parts.append(f"(j <= {own})")
    if case.window is not None:
        parts.append(f"(j <= {own}) & (j > {own} - {case.window})")
    if case.right_padded is not None:
        parts.append("(j < real[b])")
    if case.left_padded is not None:
        parts.append("(j >= first[b])")
    if case.documents is not None:
        parts.append("(document[i] == document[j])")
    if case.visible is not None:
        parts.append("mask[b, h, i, j]")
    return " & ".join(parts)


def _score(case: Case) -> str:
    """Return what becomes of a score."""
    capped = "s" if case.softcap is None else f"{case.softcap} * torch.tanh(s / {case.softcap})"
    return capped if case.bias is None else f"{capped} + bias[b, h, i, j]"
