"""What the CPU kernel is held to on shapes too many, or too large, for the reference: torch in float64."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headwise import ops
from headwise.ops import AttentionResult

from ..tolerance import CAPS


def in_float64(*made: Tensor, **options: Any) -> AttentionResult:
    """Return attention by torch in float64, on its plain path."""
    wide = {name: _widened(given) for name, given in options.items()}
    return ops.attention_with_logsumexp(*map(_widened, made), impl="torch", **wide)


def _widened(given: Any) -> Any:
    return given.double() if isinstance(given, Tensor) and given.is_floating_point() else given


def assert_near(found: Tensor, exact: Tensor, name: str) -> None:
    largest = max(1.0, exact.nan_to_num(neginf=0.0).abs().max().item())
    torch.testing.assert_close(
        found.double(), exact, rtol=0, atol=CAPS[found.dtype] * largest, msg=lambda text: f"{name}: {text}"
    )
