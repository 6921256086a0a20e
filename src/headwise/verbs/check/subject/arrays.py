"""Between tensors and NumPy arrays, for functions that are written in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor


def as_arrays(given: Any) -> Any:
    """Return arguments with every tensor as an array, at any depth."""
    if isinstance(given, Tensor):
        return given.numpy() if given.dtype != torch.bfloat16 else given.float().numpy()
    if isinstance(given, dict):
        return {name: as_arrays(each) for name, each in given.items()}
    if isinstance(given, list | tuple):
        return type(given)(as_arrays(each) for each in given) if type(given) in {list, tuple} else given
    return given


def as_tensor(given: Any) -> Any:
    """Return an array as a tensor, and anything else as it is."""
    return torch.from_numpy(np.array(given)) if isinstance(given, np.ndarray) else given
