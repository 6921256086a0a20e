"""What any layer must be given before a shape counts: tensors of the kind that its weights are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from headwise.errors import ArgumentError

Weight = tuple[str, Tensor | None]
"""What a weight is called, and itself; None where the projection has to say what it takes."""


def check_kinds(named: Mapping[str, Any]) -> None:
    """Refuse inputs that are no tensors of floating point.

    Raises:
        ArgumentError: one is not.

    """
    for name, given in named.items():
        if not isinstance(given, Tensor):
            raise ArgumentError(
                f"{name} is a {type(given).__name__}; pass a floating point tensor, such as "
                f"torch.as_tensor({name})"
            )
        if not given.is_floating_point():
            raise ArgumentError(
                f"{name} has dtype {_short(given.dtype)}; it must be floating point: embed token numbers "
                f"first, or pass {name}.float()"
            )


def check_weights_take(named: Mapping[str, Tensor], weights: Iterable[Weight]) -> None:
    """Refuse inputs of another dtype or device than that of the weights they are multiplied by.

    Raises:
        ArgumentError: one has another.

    """
    for (name, given), (weight_name, weight) in zip(named.items(), weights, strict=True):
        if weight is None:
            continue
        if given.device != weight.device:
            raise ArgumentError(
                f"{name} is on {given.device} and {weight_name} on {weight.device}; move one, "
                f"{name}.to({str(weight.device)!r}) or the layer"
            )
        if given.dtype != weight.dtype and not _cast_by_autocast(given, weight):
            raise ArgumentError(
                f"{name} is {_short(given.dtype)} and {weight_name} {_short(weight.dtype)}; pass "
                f"{name}.to({weight.dtype}), or convert the layer, layer.to({given.dtype})"
            )


def weight_of(name: str, projection: nn.Module) -> Weight:
    """Return the weight of a plain linear layer; one that is adapted, quantised or hooked may cast."""
    as_made = not projection._forward_pre_hooks and "forward" not in vars(projection)
    return f"{name}.weight", projection.weight if type(projection) is nn.Linear and as_made else None


def check_flags(**flags: Any) -> None:
    """Refuse what is neither True nor False.

    Raises:
        ArgumentError: a flag is something else.

    """
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise ArgumentError(f"{name} is a {type(flag).__name__}; pass True or False")


def _cast_by_autocast(given: Tensor, weight: Tensor) -> bool:
    kind = given.device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return False
    return torch.float64 not in (given.dtype, weight.dtype)  # which it leaves as they are


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
