"""What detection is given to judge by: inputs, an output, and how near is near enough."""

from __future__ import annotations

from math import inf
from typing import Any

from torch import Tensor

from headwise.errors import ArgumentError
from headwise.nn.layouts.conversion import as_tensor


def checked_inputs(inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return what query, key and value are made from; one tensor or array stands for all three.

    Raises:
        ArgumentError: there are neither one nor three, or one is no `[batch, length, width]`.

    """
    given = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,) * 3
    if len(given) != 3:
        raise ArgumentError(f"inputs are {len(given)} tensors; pass one, or three: query, key and value")
    query, key, value = (
        _sequence(f"inputs ({name})", one) for name, one in zip(("query", "key", "value"), given, strict=True)
    )
    return query, key, value


def checked_output(output: Any) -> Tensor:
    """Return what the layer gave.

    Raises:
        ArgumentError: it is no `[batch, length, width]`, or all that a module returned.

    """
    if isinstance(output, (tuple, list)):
        raise ArgumentError(
            f"output is a {type(output).__name__}; pass its first tensor, as output[0], if that is what the "
            "layer gave"
        )
    return _sequence("output", output)


def checked_tolerance(tolerance: Any) -> float:
    """Return the largest error that fits.

    Raises:
        ArgumentError: it is no finite number of at least 0.

    """
    is_number = isinstance(tolerance, (int, float)) and not isinstance(tolerance, bool)
    if not is_number or not 0 <= tolerance < inf:
        raise ArgumentError(f"tolerance={tolerance!r} must be a number of at least 0, such as 0.001")
    return float(tolerance)


def check_finite(name: str, tensor: Tensor) -> None:
    """Refuse NaN and infinity, by which nothing can be judged."""
    if not tensor.isfinite().all():
        count = int((~tensor.isfinite()).sum())
        raise ArgumentError(f"{name} holds {count} NaN or infinite numbers, by which nothing can be judged")


def _sequence(name: str, given: Any) -> Tensor:
    tensor = as_tensor(name, given)
    if tensor.dim() != 3 or not tensor.is_floating_point() or tensor.numel() == 0:
        raise ArgumentError(
            f"{name} has shape {tuple(tensor.shape)} and dtype {tensor.dtype}; it must be "
            "[batch, length, width], floating point, and not empty"
        )
    check_finite(name, tensor)
    return tensor
