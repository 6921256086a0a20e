"""The linear maps that a module or an object holds: its matrices, each with its bias, by their path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from headwise.verbs.check.subject.weight_names import weight_role

Order = Literal["out_in", "in_out"]


@dataclass(frozen=True, eq=False)
class HeldMap:
    """One matrix as it is stored.

    - path: where it is in what holds it
    - weight: two axes, or three with the head first
    - bias: None where it has none, or where it stands apart
    - order: of the last two axes; None where both are possible
    """

    path: str
    weight: Tensor
    bias: Tensor | None
    order: Order | None


@dataclass(frozen=True)
class Held:
    """Every matrix, in the order of registration, and the vectors that may be biases."""

    maps: tuple[HeldMap, ...]
    vectors: dict[str, Tensor]


def held_by(owner: Any) -> Held:
    """Return what a module holds at any depth, or what an object has as its attributes."""
    maps: list[HeldMap] = []
    vectors: dict[str, Tensor] = {}
    for path, part in _parts(owner):
        one = _map_of_layer(path, part)
        if one is not None:
            maps.append(one)
        if one is not None or isinstance(part, nn.Embedding):
            continue
        for name, tensor in _tensors(part):
            there = f"{path}.{name}" if path else name
            role = weight_role(name)
            if tensor.dim() == 1 or (role is not None and role.is_bias):
                vectors[there] = tensor.detach()
            elif tensor.dim() in {2, 3}:
                maps.append(HeldMap(there, tensor.detach(), None, None))
    return Held(tuple(maps), vectors)


def _parts(owner: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(owner, nn.Module):
        # One module in several places is one map in each: heads that share their weights are heads.
        yield from owner.named_modules(remove_duplicate=False)
    elif hasattr(owner, "__dict__") and not isinstance(owner, type):
        yield "", owner
        for name, each in vars(owner).items():
            if isinstance(each, nn.Module):
                yield from each.named_modules(prefix=name, remove_duplicate=False)


def _map_of_layer(path: str, part: Any) -> HeldMap | None:
    """Return the map of a linear layer, of whatever library or making, or None."""
    if not isinstance(part, nn.Module) or isinstance(part, nn.Embedding):
        return None
    own = dict(part.named_parameters(recurse=False))
    weight = getattr(part, "weight", None)
    bias = getattr(part, "bias", None)
    bias = bias.detach() if isinstance(bias, Tensor) else None
    if isinstance(part, nn.Conv1d | nn.Conv2d) and set(part.kernel_size) == {1}:
        return HeldMap(path, part.weight.detach().flatten(1), bias, "out_in")
    if isinstance(weight, Tensor) and weight.dim() == 2:
        if isinstance(part, nn.Linear) or hasattr(part, "in_features"):
            return HeldMap(path, weight.detach(), bias, "out_in")
        if type(part).__name__ == "Conv1D" and hasattr(part, "nf"):
            # As transformers has it for GPT-2.
            return HeldMap(path, weight.detach(), bias, "in_out")
    return _map_of_own_making(path, own) if path and not list(part.children()) else None


def _map_of_own_making(path: str, own: dict[str, nn.Parameter]) -> HeldMap | None:
    """Return the map of a module that has one matrix, at most one vector, and no name for either."""
    matrices = [each.detach() for name, each in own.items() if each.dim() == 2 and weight_role(name) is None]
    vectors = [each.detach() for each in own.values() if each.dim() == 1]
    if len(matrices) != 1 or len(vectors) > 1 or len(own) != 1 + len(vectors):
        return None
    return HeldMap(path, matrices[0], vectors[0] if vectors else None, None)


def _tensors(part: Any) -> Iterator[tuple[str, Tensor]]:
    """Return the parameters that stand bare in one module, and tensors that are plain attributes."""
    if isinstance(part, nn.Module):
        for name, parameter in part.named_parameters(recurse=False):
            yield name, parameter
    for name, each in vars(part).items():
        if isinstance(each, np.ndarray) and each.dtype.kind == "f":
            yield name, torch.from_numpy(each)
        elif isinstance(each, Tensor) and each.is_floating_point():
            yield name, each
