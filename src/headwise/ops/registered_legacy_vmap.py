"""The torch operators under torch's older map, which has tensors of its own.

`is_grads_batched=True`, and with it `torch.autograd.functional.jacobian(vectorize=True)`, maps a backward
pass so. An operator without a rule is computed for one element after the other, which torch cannot do where
there are lists of tensors among the arguments. The rule is to hand what is mapped to `torch.vmap`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor
from torch.utils import _pytree as pytree

from headwise.ops.registered import ATTENTION, ATTENTION_BACKWARD, LIBRARY

_LEVELS = range(1, 65)
"""How torch numbers the older maps that are at work inside each other."""


def _by_vmap(operator: Callable[..., Any]) -> Callable[..., Any]:
    """Return what computes the operator for the elements of the older map."""

    def mapped(*given: Any) -> Any:
        leaves, form = pytree.tree_flatten(given)
        levels = [level for level in _LEVELS if any(_is_at(level, leaf) for leaf in leaves)]
        function = operator
        for level in reversed(levels):  # the innermost map has the highest level, and its axis comes last
            dims = [0 if _is_at(level, leaf) else None for leaf in leaves]
            leaves = [_taken_out(*each, level) for each in zip(leaves, dims, strict=True)]
            function = torch.vmap(function, in_dims=pytree.tree_unflatten(dims, form))
        found = function(*pytree.tree_unflatten(leaves, form))
        return type(found)(_put_in(each, levels) for each in found)

    return mapped


def _is_at(level: int, given: Any) -> bool:
    """Return whether a tensor has an axis at this level: where it has none, it would take one of any size."""
    if not isinstance(given, Tensor) or not is_legacy_batchedtensor(given):
        return False
    sizes = {torch._remove_batch_dim(given, level, size, 0).shape[0] for size in (1, 2)}
    return len(sizes) == 1


def _taken_out(leaf: Any, dim: int | None, level: int) -> Any:
    """Return a leaf with its axis at this level, if it has one there, in front."""
    return leaf if dim is None else torch._remove_batch_dim(leaf, level, 0, dim)


def _put_in(tensor: Tensor, levels: Sequence[int]) -> Tensor:
    """Return a tensor whose first axes are again at these levels."""
    for level in levels:
        tensor = torch._add_batch_dim(tensor, 0, level)
    return tensor


LIBRARY.impl("attention", _by_vmap(ATTENTION), "Batched")
LIBRARY.impl("attention_backward", _by_vmap(ATTENTION_BACKWARD), "Batched")
