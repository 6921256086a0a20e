"""The two ways in which `observe` goes: the kernel's second visit, and plain torch; each called as it is."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

from headwise import ops
from headwise.ops import Observation, kernel_visit

from .ways import by_kernel, takes


def by_plain(*tensors: Tensor, **options: Any) -> Observation:
    """Observe in plain torch, whatever the kernel could do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_visit, "why_not", lambda _call: ("plain torch is wanted",))
        return ops.observe(*tensors, **options)


def by_visit(*tensors: Tensor, **options: Any) -> Observation:
    """Observe in the kernel, and hold it to having taken the call, or to having left it as it must."""
    taken = []

    def observe(*given: Any) -> Observation:
        taken.append(given)
        return visit(*given)

    visit = kernel_visit.observe
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_visit, "observe", observe)
        found = ops.observe(*tensors, **options)
    assert bool(taken) == _is_for_the_kernel(tensors, options), "observed in another way than wanted"
    return found


def _is_for_the_kernel(tensors: tuple[Tensor, ...], options: dict[str, Any]) -> bool:
    """Return whether the kernel visits the rows of such a call: it has no float64 and no empty tensors."""
    query, key, _ = tensors
    return 0 not in (*query.shape[:3], key.shape[2]) and takes(by_kernel, query, options)


every_observer = pytest.mark.parametrize("observe", [by_plain, by_visit], ids=["plain", "kernel"])
