"""Weights that all have one number, as biases begin, drawn anew: nothing that is done to them would show."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headwise.verbs.check.subject.held_maps import held_by
from headwise.verbs.check.subject.weight_names import weight_role


def redraw_constants(owner: Any) -> None:
    """Draw the constant matrices and biases of a module's projections; scales of norms stay as they are."""
    held = held_by(owner)
    biases = [vector for path, vector in held.vectors.items() if weight_role(path.split(".")[-1]) is not None]
    for tensor in [*(each for one in held.maps for each in (one.weight, one.bias)), *biases]:
        if tensor is not None and _is_constant(tensor):
            with torch.no_grad():
                tensor.normal_(std=0.5)


def _is_constant(tensor: Tensor) -> bool:
    return tensor.numel() > 0 and bool((tensor == tensor.flatten()[0]).all())
