"""torch.nn.functional.scaled_dot_product_attention: its fused kernel, and its math."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from headwise.verbs.bench.backends.backend import Backend, Prepared, refuse_too_many_scores
from headwise.verbs.bench.problem import Problem


class TorchSdpa(Backend):
    """The fused kernel, and nothing else if it refuses."""

    name: ClassVar[str] = "torch_sdpa"
    label: ClassVar[str] = "SDPA"

    def prepare(self, problem: Problem, threads: int) -> Prepared:
        """Return the call; torch's number of threads is set by the bench."""
        return _prepared(problem, SDPBackend.FLASH_ATTENTION)


class TorchMath(Backend):
    """The plain operations, which store every weight."""

    name: ClassVar[str] = "torch_math"
    label: ClassVar[str] = "math"

    def prepare(self, problem: Problem, threads: int) -> Prepared:
        """Return the call; torch's number of threads is set by the bench."""
        refuse_too_many_scores(problem)
        return _prepared(problem, SDPBackend.MATH)


def _prepared(problem: Problem, kernel: SDPBackend) -> Prepared:
    work = problem.work
    is_causal = work.causal and work.window is None
    mask = None if is_causal or problem.mask is None else additive_mask(problem)
    return Prepared(
        call=lambda: scaled_dot_product_attention(
            problem.query,
            problem.key,
            problem.value,
            attn_mask=mask,
            is_causal=is_causal,
            enable_gqa=work.num_kv_heads != work.num_heads,
        ),
        output=lambda found: found,
        form=f"torch.nn.functional.scaled_dot_product_attention, {kernel.name}",
        around=lambda: sdpa_kernel(kernel),
    )


def additive_mask(problem: Problem) -> Tensor:
    """Return the mask as zeros and -inf, into which torch would turn booleans in every call."""
    visible = problem.visible()
    mask = torch.zeros(visible.shape, dtype=problem.query.dtype).masked_fill_(~visible, -torch.inf)
    return mask[:, None]
