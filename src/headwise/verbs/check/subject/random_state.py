"""A random state of its own for the subject: it draws anew at each call, and nobody else's draws change."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


class RandomState:
    """The states of torch's, NumPy's and Python's generators, begun at a seed."""

    def __init__(self, seed: int) -> None:
        with self._outside_kept():
            torch.manual_seed(seed)
            np.random.seed(seed)  # noqa: NPY002 - it is the global state that the subject draws from
            random.seed(seed)
            self._own = _states()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Let what runs draw from these states, which go on from call to call."""
        with self._outside_kept():
            _set(self._own)
            try:
                yield
            finally:
                self._own = _states()

    @contextmanager
    def _outside_kept(self) -> Iterator[None]:
        outside = _states()
        try:
            yield
        finally:
            _set(outside)


def _states() -> tuple[Any, ...]:
    return torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002 - as above


def _set(states: tuple[Any, ...]) -> None:
    torch.set_rng_state(states[0])
    np.random.set_state(states[1])  # noqa: NPY002 - as above
    random.setstate(states[2])
