"""What a call costs beside the arithmetic: attention of one token on a tiny cache, less the kernel's time.

Every layer of a model pays it for every token it writes.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable

import numpy as np
import torch

from headwise import Causal, attention
from headwise.kernels import attend as kernel

CALLS, ROUNDS = 100, 200
LIMITS = {"no_mask_outside_us": 60.0, "causal_outside_us": 60.0}


def measure() -> dict[str, float]:
    """Return the best microseconds of the kernel alone, and of what comes on top of it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    query, key, value = torch.randn(1, 8, 1, 64), torch.randn(1, 2, 16, 64), torch.randn(1, 2, 16, 64)
    calls: dict[str, Callable[[], object]] = {
        "kernel": kernel_alone(query, key, value),
        "no_mask": lambda: attention(query, key, value, impl="cpu"),
        "causal": lambda: attention(query, key, value, mask=Causal(), impl="cpu"),
    }
    # All in turn, so that a busy moment of the machine falls on none of them alone.
    rounds = [
        {name: timeit.timeit(call, number=CALLS) for name, call in calls.items()} for _ in range(ROUNDS)
    ]
    torch.set_num_threads(threads)
    best = {name: 1e6 / CALLS * min(taken[name] for taken in rounds) for name in calls}
    return {
        "kernel_us": best["kernel"],
        "no_mask_outside_us": best["no_mask"] - best["kernel"],
        "causal_outside_us": best["causal"] - best["kernel"],
    }


def kernel_alone(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> Callable[[], object]:
    """Return the call of the kernel that attention ends in, on arrays made before."""
    arrays = kernel.Arrays(
        query=query.numpy(),
        key=key.numpy(),
        value=value.numpy(),
        starts=np.zeros((1, 1), np.int64),
        stops=np.full((1, 1), key.shape[2], np.int64),
    )
    output = np.empty(query.shape, np.float32)
    return lambda: kernel.attend(
        arrays, output, None, element="float32", scale=64**-0.5, softcap=None, num_threads=1
    )
