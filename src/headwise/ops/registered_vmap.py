"""The torch operators under `torch.vmap`: the mapped axis becomes part of the batch.

With dropout each element is a call of its own: its decisions then hang on its own seed and places, forward,
backward and in any order of transforms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from headwise.ops import structure
from headwise.ops.registered import ATTENTION, ATTENTION_BACKWARD, LIBRARY, Terms, asked_for

_NUM_TERMS = len(Terms._fields)


class _Fold:
    """How the mapped axis, of `count` elements, goes into the batch."""

    def __init__(self, count: int, terms: Terms, dims: Any) -> None:
        self._count, self._terms, self._dims = count, terms, dims
        self._batch = _size(terms.query, dims.query)

    def terms(self, *, whole: Sequence[bool] = ()) -> Terms:
        """Return the terms of all elements.

        What all of them share keeps a first size of 1, but for the biases that `whole` names.
        """
        terms, dims = self._terms, self._dims
        whole = whole or [False] * len(terms.additive)
        return terms._replace(
            query=self.inside(terms.query, dims.query),
            key=self.inside(terms.key, dims.key),
            value=self.inside(terms.value, dims.value),
            boolean=[self._spread(*each) for each in zip(terms.boolean, dims.boolean, strict=True)],
            additive=[self._spread(*each) for each in zip(terms.additive, dims.additive, whole, strict=True)],
            sinks=None if terms.sinks is None else self._spread(terms.sinks, dims.sinks),
            structure=structure.repeated(terms.structure, self._count),
        )

    def inside(self, tensor: Tensor, dim: int | None, axis: int = 0) -> Tensor:
        """Return the tensor with the mapped axis in the batch, which is its `axis`."""
        return self._in_front(tensor, dim, axis).flatten(axis, axis + 1)

    def outside(self, tensor: Tensor, axis: int = 0) -> Tensor:
        """Return the tensor with the mapped axis, again by itself, as its `axis`."""
        return tensor.reshape(*tensor.shape[:axis], self._count, self._batch, *tensor.shape[axis + 1 :])

    def of_bias(self, gradient: Tensor, place: int) -> Tensor:
        """Return the gradient of a bias as its elements have it."""
        found = self.outside(gradient)
        of_all = _size(self._terms.additive[place], self._dims.additive[place]) == 1
        return found.sum(1, keepdim=True) if of_all else found

    def _in_front(self, tensor: Tensor, dim: int | None, axis: int) -> Tensor:
        if dim is not None:
            return tensor.movedim(dim, axis)
        return tensor.unsqueeze(axis).expand(*tensor.shape[:axis], self._count, *tensor.shape[axis:])

    def _spread(self, tensor: Tensor, dim: int | None, whole: bool = False) -> Tensor:
        """Return a mask, bias or sinks, whose first size may be 1."""
        shared = _size(tensor, dim) == 1
        if shared and dim is None and not whole:
            return tensor
        found = self._in_front(tensor, dim, 0)
        return (found.expand(-1, self._batch, *found.shape[2:]) if shared else found).flatten(0, 1)


def _size(tensor: Tensor, dim: int | None) -> int:
    """Return the first size of each element of a tensor."""
    return tensor.shape[1 if dim == 0 else 0]


def _attention(info: Any, in_dims: Sequence[Any], *given: Any) -> Any:
    terms, dims = Terms(*given[:_NUM_TERMS]), Terms(*in_dims[:_NUM_TERMS])
    if terms.dropout:
        found = _one_by_one(ATTENTION, info.batch_size, in_dims, given)
        return found, (0,) * len(found)
    fold = _Fold(info.batch_size, terms, dims)
    output, logsumexp, rows = ATTENTION(*fold.terms(), *given[_NUM_TERMS:])
    return (fold.outside(output), fold.outside(logsumexp), fold.outside(rows, 1)), (0, 0, 1)


def _attention_backward(info: Any, in_dims: Sequence[Any], *given: Any) -> Any:
    terms, dims = Terms(*given[:_NUM_TERMS]), Terms(*in_dims[:_NUM_TERMS])
    if terms.dropout:
        found = list(_one_by_one(ATTENTION_BACKWARD, info.batch_size, in_dims, given))
        return found, [0] * len(found)
    fold = _Fold(info.batch_size, terms, dims)
    *tensors, wanted = given[_NUM_TERMS:]
    asked = asked_for(wanted)
    folded = [
        None if tensor is None else fold.inside(tensor, dim, axis)
        for tensor, dim, axis in zip(tensors, in_dims[_NUM_TERMS:], (0, 0, 1, 0, 0), strict=False)
    ]
    found = ATTENTION_BACKWARD(*fold.terms(whole=asked.biases), *folded, wanted)
    biases = [place for place, is_wanted in enumerate(asked.biases) if is_wanted]
    others = len(found) - len(biases)
    mapped = [fold.outside(gradient) for gradient in found[:others]]
    mapped += [fold.of_bias(gradient, place) for gradient, place in zip(found[others:], biases, strict=True)]
    return mapped, [0] * len(mapped)


def _one_by_one(
    operator: Callable[..., Any], count: int, in_dims: Sequence[Any], given: Sequence[Any]
) -> tuple[Tensor, ...]:
    """Return what the operator returns for each element, the elements side by side."""
    leaves, form = pytree.tree_flatten(list(given))
    dims = pytree.tree_leaves(list(in_dims))
    elements = []
    for place in range(count):
        picked = [
            leaf if dim is None else leaf.select(dim, place) for leaf, dim in zip(leaves, dims, strict=True)
        ]
        elements.append(operator(*pytree.tree_unflatten(picked, form)))
    return tuple(torch.stack(parts) for parts in zip(*elements, strict=True))


torch.library.register_vmap("headwise::attention", _attention, lib=LIBRARY)
torch.library.register_vmap("headwise::attention_backward", _attention_backward, lib=LIBRARY)
