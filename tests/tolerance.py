"""The one rule by which a result is held to the float64 reference."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# No bad baseline excuses more than this share of the largest reference value.
CAPS = {torch.float64: 1e-12, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def assert_within_rule(found: Tensor, exact: Tensor, plain: Tensor, name: str = "result") -> None:
    """Hold `found` to `exact`: at most twice the error of `plain`, which is naive torch in the same dtype.

    error <= 2 x plain error + 2 eps max|exact|, and never more than the dtype's cap. What is not finite must
    be so in both, in the same places.
    """
    assert found.shape == exact.shape, f"{name} has shape {tuple(found.shape)}, not {tuple(exact.shape)}"
    assert found.dtype in CAPS, f"{name} has dtype {found.dtype}"
    finite = exact.isfinite()
    torch.testing.assert_close(
        found.double()[~finite], exact[~finite], equal_nan=True, msg=f"{name}: not finite differently"
    )
    if not finite.any():
        return
    size = exact[finite].abs().max().item()
    eps = torch.finfo(found.dtype).eps
    error = _largest_error(found, exact, finite)
    allowed = min(
        2 * _largest_error(plain, exact, finite) + 2 * eps * size, CAPS[found.dtype] * max(size, eps)
    )
    assert error <= allowed, (
        f"{name} is off by {error:.3g}; allowed is {allowed:.3g}, the largest value {size:.3g}"
    )


def _largest_error(found: Tensor, exact: Tensor, where: Tensor) -> float:
    error = (found.double() - exact)[where].abs().max().item()
    return math.inf if math.isnan(error) else error
