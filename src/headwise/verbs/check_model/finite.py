"""Weights that are NaN or infinite: found, and put out of the way while a model is examined."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class Spoiled:
    """A parameter with entries that are no numbers: its path, and where they are, boolean of its shape."""

    name: str
    where: Tensor

    @property
    def module(self) -> str:
        """The path of the module that has it."""
        return self.name.rpartition(".")[0]

    @property
    def count(self) -> int:
        """How many entries."""
        return int(self.where.sum())


@contextmanager
def finite_weights(model: nn.Module) -> Iterator[tuple[Spoiled, ...]]:
    """Write 0 in place of every NaN and infinity of a model's parameters, and put them back after.

    One of them would make everything behind it NaN, where nothing could be told apart any more.
    """
    found = [
        (parameter, Spoiled(name, ~parameter.detach().isfinite()))
        for name, parameter in model.named_parameters()
        if parameter.is_floating_point() and not _is_finite(parameter.detach())
    ]
    before = [parameter.detach()[spoiled.where].clone() for parameter, spoiled in found]
    try:
        with torch.no_grad():
            for parameter, spoiled in found:
                parameter[spoiled.where] = 0.0
        yield tuple(spoiled for _, spoiled in found)
    finally:
        with torch.no_grad():
            for (parameter, spoiled), entries in zip(found, before, strict=True):
                parameter[spoiled.where] = entries


def _is_finite(parameter: Tensor) -> bool:
    # No sum is finite where an entry is not, and it takes a tenth of the time of a look at every entry; where
    # the sum is only too large, that look follows. 8-bit floats can do neither, and come with scales.
    if parameter.element_size() == 1:
        return True
    return bool(parameter.sum(dtype=torch.float32).isfinite()) or bool(parameter.isfinite().all())
