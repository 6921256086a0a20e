"""Sums in one order: torch shares a sum out among its threads, and the last bits then hang on how many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


def summed(terms: Tensor, *axes: int) -> Tensor:
    """Return the sums over axes of numbers in memory, added in float64 and rounded once."""
    numbers = terms.detach().numpy()
    with np.errstate(all="ignore"):  # of numbers that are none NumPy would speak
        total: Any = np.add.reduce(numbers, axis=axes, dtype=np.float64)
        total = np.asarray(total, dtype=numbers.dtype)
    return torch.from_numpy(total)


def summed_to(terms: Tensor, shape: Sequence[int]) -> Tensor:
    """Return numbers summed over the axes that have size 1 in `shape`, of the same rank."""
    axes = _axes(terms.shape, shape)
    return summed(terms, *axes).reshape(tuple(shape)) if axes else terms


def _axes(whole: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(axis for axis, size in enumerate(shape) if size != whole[axis])


def spread(numbers: Tensor, shape: Sequence[int]) -> Tensor:
    """Return `numbers.expand(shape)`, of the same rank, with a gradient that is summed in one order.

    For tensors in memory that nobody but autograd follows.
    """
    found: Tensor = _Spread.apply(numbers, tuple(shape))  # type: ignore[no-untyped-call]  # torch leaves it so
    return found


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(numbers: Tensor, shape: tuple[int, ...]) -> Tensor:
        return numbers.expand(shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.shape = inputs[0].shape

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        if _is_mapped(gradient):
            return gradient.sum(_axes(gradient.shape, ctx.shape), keepdim=True), None
        return _Gathered.apply(gradient, ctx.shape), None  # type: ignore[no-untyped-call]  # as above


class _Gathered(torch.autograd.Function):
    """The gradient of `_Spread`, which is that of this one in turn."""

    @staticmethod
    def forward(terms: Tensor, shape: tuple[int, ...]) -> Tensor:
        return summed_to(terms, shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.shape = inputs[0].shape

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        if _is_mapped(gradient):
            return gradient.expand(ctx.shape), None
        return spread(gradient, ctx.shape), None


def _is_mapped(gradient: Tensor) -> bool:
    """Return whether several upstreams are mapped over: torch's own way is the one with them.

    A function of ours would hang its graph on the tensor that stands for them all, out of which each is then
    taken without it.
    """
    return not torch._C._has_storage(gradient)
