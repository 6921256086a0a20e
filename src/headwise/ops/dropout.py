"""Dropout on weights, reproducible from torch's generator: a seed for each call, and the decisions it makes.

`headwise.kernels.philox` has the rule. The kernel follows it in vector code; here is the same in torch's
integers, for whatever is computed by torch's operations, forward or backward.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from headwise.errors import ArgumentError
from headwise.kernels.philox import KEY_STEPS, MULTIPLIERS, ROUNDS, WORDS, threshold_of
from headwise.ops.arguments import Call

_LOW_HALF = 2**32 - 1

_JOINED_AFTER = 3
"""Rounds after which every word hangs on all four of its counter and both of its key, and has their shape."""


class Terms(NamedTuple):
    """Dropout as the kernel takes it: `philox` has the meaning; 0, 0 and 1 for none."""

    seed: int
    threshold: int
    growth: float


def draw_seed(device: torch.device) -> Tensor:
    """Return a seed, int64 `[1]`: one draw from the default generator of `device`."""
    return torch.randint(2**63 - 1, (1,), dtype=torch.int64, device=device)


def seeded(call: Call) -> Call:
    """Return the call with a seed of its own if it has dropout: one draw a call, whatever computes it."""
    return replace(call, seed=draw_seed(call.query.device)) if call.dropout else call


def terms(call: Call) -> Terms:
    """Return the dropout of a call in numbers.

    Raises:
        ArgumentError: it has dropout and no seed.

    """
    if not call.dropout:
        return Terms(0, 0, 1.0)
    return Terms(int(_seed_of(call)), threshold_of(call.dropout), _growth_of(call))


def kept(call: Call, rows: slice) -> Tensor:
    """Return what dropout multiplies the weights of the queries `rows` by: 0, or `1 / (1 - dropout)`.

    `[batch, num_heads, rows, kv_len]` in the dtype of computation.

    Raises:
        ArgumentError: the call has no seed.

    """
    words, sizes = _words(call, rows), call.sizes
    # [batch, num_heads, rows, counters, WORDS] -> [batch, num_heads, rows, keys]
    drawn = torch.stack([word >= threshold_of(call.dropout) for word in words], -1).flatten(-2)
    return drawn[..., : sizes.kv_len].to(call.compute_dtype) * _growth_of(call)


def _words(call: Call, rows: slice) -> list[Tensor]:
    sizes, device = call.sizes, call.query.device
    # [batch * num_heads] -> [batch, num_heads, 1, 1]
    heads = torch.arange(sizes.batch * sizes.num_heads, device=device)
    heads = heads.reshape(sizes.batch, sizes.num_heads, 1, 1)
    positions = torch.arange(rows.start, rows.stop, device=device)[:, None]
    counters = torch.arange(-(-sizes.kv_len // WORDS), device=device)
    seed = _seed_of(call)
    return philox((counters, positions, heads, torch.zeros_like(heads)), (seed, seed >> 32))


def philox(counters: tuple[Tensor, ...], keys: tuple[Tensor, Tensor]) -> list[Tensor]:
    """Return the four random words of each counter, int64 from 0 to 2^32 - 1, in the shape of all of them.

    counters and keys are such words too, four and two, and broadcast; they stay small while they can. What
    lies above the low half of a key means nothing.
    """
    first, second, third, fourth = counters
    for done in range(ROUNDS):
        # Products beyond 2^63 wrap around to negative numbers, which have the same 64 bits.
        left, right = MULTIPLIERS[0] * first, MULTIPLIERS[1] * third
        is_joined = done >= _JOINED_AFTER
        first = _scrambled(right >> 32, second, keys[0], over=is_joined)
        third = _scrambled(left >> 32, fourth, keys[1], over=is_joined)
        second, fourth = right, left  # their high halves are masked wherever they arrive
        keys = keys[0] + KEY_STEPS[0], keys[1] + KEY_STEPS[1]
    return [first, second & _LOW_HALF, third, fourth & _LOW_HALF]


def _scrambled(high: Tensor, word: Tensor, key: Tensor, *, over: bool) -> Tensor:
    """Return the low half of all three by exclusive or; over the first it takes a quarter less time."""
    if over:
        return high.bitwise_xor_(word).bitwise_xor_(key).bitwise_and_(_LOW_HALF)
    return (high ^ word ^ key) & _LOW_HALF


def _growth_of(call: Call) -> float:
    return 1.0 / (1.0 - call.dropout)


def _seed_of(call: Call) -> Tensor:
    if call.seed is None:
        raise ArgumentError(f"dropout={call.dropout} without a seed; draw one for the call: seeded(call)")
    return call.seed
