"""jax.nn.dot_product_attention, compiled by XLA for the CPU; it stores every weight."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from headwise.verbs.bench.backends.backend import (
    Backend,
    Prepared,
    refuse_too_many_scores,
)
from headwise.verbs.bench.problem import Problem
from headwise.verbs.libraries import CannotRunError, required
from headwise.verbs.terminal import several

# XLA reads the number of its threads once, when it starts.
THREADS_VARIABLE = "NPROC"


class JaxXla(Backend):
    """The function JAX has for attention, jitted, its tensors in the layout it takes."""

    name: ClassVar[str] = "jax"
    label: ClassVar[str] = "JAX"

    def __init__(self) -> None:
        self._started_with: int | None = None

    def prepare(self, problem: Problem, threads: int) -> Prepared:
        """Return the jitted call.

        Raises:
            CannotRunError: JAX is missing or runs in this process on other threads, or memory is short.

        """
        refuse_too_many_scores(problem)
        jax = self._started(threads)
        work = problem.work
        tensors = [_to_jax(jax, tensor) for tensor in (problem.query, problem.key, problem.value)]
        lengths = None if work.lengths is None else jax.numpy.asarray(work.lengths)
        window = None if work.window is None else (work.window - 1, 0)
        attend = jax.jit(
            lambda query, key, value: jax.nn.dot_product_attention(
                query,
                key,
                value,
                is_causal=work.causal,
                local_window_size=window,
                key_value_seq_lengths=lengths,
                implementation="xla",
            )
        )
        return Prepared(
            call=lambda: attend(*tensors).block_until_ready(),
            output=_to_torch,
            form="jax.nn.dot_product_attention, jitted, tensors [batch, length, heads, head_dim]",
        )

    def _started(self, threads: int) -> Any:
        if self._started_with is None and sys.modules.get("jax"):
            raise CannotRunError("JAX was started before, on threads of its own; run it in a new process")
        if self._started_with is not None and self._started_with != threads:
            ran = several(self._started_with, "thread")
            raise CannotRunError(f"JAX keeps the {ran} it had before; run it in a new process")
        with _variable(THREADS_VARIABLE, str(threads)):
            jax = required("jax", package="JAX")
            jax.config.update("jax_platforms", "cpu")
            # With one thread the work then stays in the calling thread, whose clock can see it.
            jax.config.update("jax_cpu_enable_async_dispatch", False)
            jax.devices()  # starts it
        self._started_with = threads
        return jax


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    """Set an environment variable for a while."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _to_jax(jax: Any, tensor: Tensor) -> Any:
    array = jax.numpy.asarray(tensor.float().transpose(1, 2).contiguous().numpy())
    return array.astype(str(tensor.dtype).removeprefix("torch."))


def _to_torch(found: Any) -> Tensor:
    return torch.from_numpy(np.array(found, dtype=np.float32)).transpose(1, 2)
