"""How a callable is asked: what its signature leaves open, and how its tensors stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from headwise.verbs.check.asking import Form, Inputs, Role, Sizes
from headwise.verbs.check.subject.weight_names import WeightRole


@dataclass(frozen=True, eq=False)
class Way:
    """One way to ask.

    - form, sizes: of what it is given
    - has_batch: whether its tensors have a batch axis; without one it is asked a row at a time
    - as_arrays: whether it is given NumPy arrays
    - weights: the weights that it is given as arguments, by their part
    """

    form: Form
    sizes: Sizes
    has_batch: bool = True
    as_arrays: bool = False
    weights: Mapping[WeightRole, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Kept:
    """What a call returned to be given to the next one, and how many tokens it has seen."""

    value: Any
    tokens: int


@dataclass(frozen=True, eq=False)
class Asked:
    """One call: the probe with the axes of `Form`, and the tensors as the subject is handed them."""

    inputs: Inputs
    way: Way
    tensors: Mapping[Role, Any]

    @property
    def batch(self) -> int:
        """How many rows of text there are."""
        return self.inputs.query.shape[0] if self.way.has_batch else 1

    @property
    def seq_len(self) -> int:
        """How many queries there are."""
        return self.inputs.query.shape[-2]

    @property
    def kv_len(self) -> int:
        """How many keys are handed over."""
        return self.inputs.key.shape[-2]

    @property
    def seen(self) -> int:
        """How many tokens the cache that is handed over has seen."""
        kept = self.inputs.options.get(Role.CACHE)
        return kept.tokens if isinstance(kept, Kept) else 0

    def with_copies(self, tensors: Mapping[Role, Any], options: Mapping[Role, Any]) -> Asked:
        """Return the same call with other tensors and options handed over."""
        return replace(self, tensors=tensors, inputs=replace(self.inputs, options=options))


def turned(tensor: Tensor, axes: str, *, has_batch: bool) -> Tensor:
    """Return a tensor with the axes of `Form` in the order `axes`, or one in that order with those of `Form`.

    The two orders other than those of `Form` swap two axes, so that turning twice turns back.
    """
    swapped = {"bqhd": (1, 2), "qbd": (0, 1)}.get(axes)
    if swapped is None or (axes == "qbd" and not has_batch):
        return tensor
    first, second = swapped if has_batch else (swapped[0] - 1, swapped[1] - 1)
    return tensor.transpose(first, second)
