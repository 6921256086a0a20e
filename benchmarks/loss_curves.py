"""The GPT of `examples/gpt.py` trained with headwise's attention and with torch's: two curves of its loss.

Both start from the same weights and read the same text in the same order, for each of three seeds. A number
of a curve is the mean loss of 25 steps. Rounding sets the two apart a little, and training lets that grow;
another seed sets them further apart. `largest_difference_over_spread` is the largest difference between the
two, of any seed at any step, over the standard deviation of torch's curves over the seeds at that step:
below 1 it is within the noise.
"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from statistics import fmean, stdev
from typing import Any

import torch
from examples.gpt import GPT, TEXT, encode, train
from torch import Tensor
from torch.nn import functional

import headwise as hw

SEEDS = (0, 1, 2)
STEPS, LOGGED_EVERY = 300, 25
# Within the noise is 1; a tenth of it leaves room for other processors' rounding only.
LIMITS = {"largest_difference_over_spread": 0.1}

Curves = dict[int, list[float]]


class TorchAttention(hw.MultiHeadAttention):
    """The same layer, in causal order, whose heads are computed by torch."""

    def forward(self, query: Tensor, **_: Any) -> Tensor:
        """Return the mixed heads, `[batch, seq_len, d_model]`."""
        projections = (self.q_proj, self.k_proj, self.v_proj)
        # [batch, seq_len, heads * head_dim] -> [batch, heads, seq_len, head_dim]
        queries, keys, values = (
            projection(query).unflatten(-1, (-1, self.layout.head_dim)).transpose(1, 2)
            for projection in projections
        )
        queries, keys = self.rope.rotate(queries, keys)
        heads = functional.scaled_dot_product_attention(
            queries, keys, values, is_causal=True, enable_gqa=self.layout.group_size > 1
        )
        return self.out_proj(heads.transpose(1, 2).flatten(2))


def measure() -> dict[str, float]:
    """Return both curves of each seed, and how far apart they are."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    tokens = encode(TEXT)
    curves = {
        way: {seed: curve(tokens, seed=seed, by_torch=way == "torch") for seed in SEEDS}
        for way in ("headwise", "torch")
    }
    torch.set_num_threads(threads)
    return {
        **{
            f"{way}_seed{seed}_step{(place + 1) * LOGGED_EVERY}": loss
            for way, of_way in curves.items()
            for seed, losses in of_way.items()
            for place, loss in enumerate(losses)
        },
        **comparison(curves["headwise"], curves["torch"]),
    }


def curve(tokens: Tensor, *, seed: int, by_torch: bool) -> list[float]:
    """Return the mean loss of each 25 steps of a training."""
    torch.manual_seed(seed)
    model = GPT()
    if by_torch:
        for block in model.blocks:
            block.attention.__class__ = TorchAttention
    with redirect_stdout(sys.stderr):  # the driver prints JSON there
        losses = train(model, tokens, steps=STEPS, seed=seed)
    return [fmean(losses[start : start + LOGGED_EVERY]) for start in range(0, STEPS, LOGGED_EVERY)]


def comparison(ours: Curves, theirs: Curves) -> dict[str, float]:
    """Return the largest difference of the curves, the least spread over the seeds, and the largest ratio."""
    differences = {
        seed: [abs(one - other) for one, other in zip(ours[seed], theirs[seed], strict=True)] for seed in ours
    }
    spreads = [stdev(losses) for losses in zip(*theirs.values(), strict=True)]
    return {
        "largest_difference_millinats": 1000 * max(map(max, differences.values())),
        "least_spread_millinats": 1000 * min(spreads),
        "largest_difference_over_spread": max(
            difference / spread
            for of_seed in differences.values()
            for difference, spread in zip(of_seed, spreads, strict=True)
        ),
    }
