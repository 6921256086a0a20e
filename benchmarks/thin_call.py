"""What a call costs beside the arithmetic: attention of one token on a tiny cache, less the kernel's time.

Every layer of a model pays it for every token it writes.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable

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
    """Return the call of the kernel that attention ends in, on memory made ready before."""
    output, starts, stops = torch.empty_like(query), torch.zeros(1, dtype=torch.long), torch.tensor([16])
    operands = kernel.Operands(
        "float32",
        query=(query.data_ptr(), 512, 64, 64, 1),
        key=(key.data_ptr(), 2048, 1024, 64, 1),
        value=(value.data_ptr(), 2048, 1024, 64, 1),
        output=(output.data_ptr(), 512, 64, 64, 1),
        starts=starts.data_ptr(),
        stops=stops.data_ptr(),
        interval_stride=0,
        owners=(query, key, value, output, starts, stops),
        scale=64**-0.5,
    )
    sizes = kernel.Sizes(1, 8, 2, 1, 16, 64, 64)
    return lambda: kernel.attend(sizes, operands, num_threads=1)
