"""torch's module and ours with the same weights, and what both are given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headwise.nn.compat import TorchMultiheadAttention

from ...tolerance import assert_within_rule

BATCH, SEQ_LEN, KV_LEN, EMBED_DIM, NUM_HEADS = 2, 5, 7, 12, 3

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no bias": {"bias": False},
    "own widths": {"kdim": 11, "vdim": 13},
    "one own width": {"vdim": 13, "bias": False},
    "bias_kv": {"add_bias_kv": True},
    "zero_attn": {"add_zero_attn": True},
    "both added, own widths": {"add_bias_kv": True, "add_zero_attn": True, "kdim": 11},
}


@dataclass(frozen=True)
class Pair:
    """Modules with equal weights: ours, torch's, and torch's in float64."""

    ours: TorchMultiheadAttention
    theirs: nn.MultiheadAttention
    exact: nn.MultiheadAttention

    def train(self, mode: bool) -> Pair:
        for module in (self.ours, self.theirs, self.exact):
            module.train(mode)
        return self


def pair(embed_dim: int = EMBED_DIM, num_heads: int = NUM_HEADS, **options: Any) -> Pair:
    theirs = nn.MultiheadAttention(embed_dim, num_heads, **options)
    for parameter in theirs.parameters():  # biases start at 0, where they could be forgotten unseen
        nn.init.normal_(parameter, std=0.5)
    ours = TorchMultiheadAttention(embed_dim, num_heads, **options)
    exact = nn.MultiheadAttention(embed_dim, num_heads, **options).double()
    ours.load_state_dict(theirs.state_dict())
    exact.load_state_dict(theirs.state_dict())
    return Pair(ours, theirs, exact)


def inputs(module: nn.MultiheadAttention, *, batched: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Return query, key and value of different widths and lengths, laid out as the module has it."""
    sizes = ((SEQ_LEN, module.embed_dim), (KV_LEN, module.kdim), (KV_LEN, module.vdim))
    if not batched:
        query, key, value = (torch.randn(*size) for size in sizes)
    elif module.batch_first:
        query, key, value = (torch.randn(BATCH, *size) for size in sizes)
    else:
        query, key, value = (torch.randn(length, BATCH, width) for length, width in sizes)
    return query, key, value


def masks(*, batched: bool = True) -> Iterator[dict[str, Tensor]]:
    """Yield masks under which every row sees a key, for torch gives NaN where one sees none."""
    batch = BATCH if batched else 1
    lengths = torch.tensor([4, KV_LEN])[:batch, None]
    hidden = torch.arange(KV_LEN) >= lengths
    padding = [{}, {"key_padding_mask": hidden}, {"key_padding_mask": torch.randn(batch, KV_LEN)}]
    shape = (SEQ_LEN, KV_LEN)
    dense = torch.rand(batch * NUM_HEADS, *shape) < 0.5
    dense[:, :, 0] = False
    attention = [
        {},
        {"attn_mask": dense[0]},
        {"attn_mask": dense},
        {"attn_mask": torch.randn(shape)},
        {"attn_mask": torch.randn(dense.shape).masked_fill(dense, -torch.inf)},
    ]
    for one in padding:
        for other in attention:
            # Without a batch, the padding has none either.
            yield {**({name: mask if batched else mask[0] for name, mask in one.items()}), **other}


def in_float64(given: Any) -> Any:
    """Return tensors in float64 and boolean masks as the float ones that torch makes of them."""
    if not isinstance(given, Tensor):
        return given
    if given.dtype == torch.bool:
        return torch.zeros(given.shape, dtype=torch.float64).masked_fill(given, -torch.inf)
    return given.double()


def assert_same(two: Pair, tensors: tuple[Tensor, Tensor, Tensor], **keywords: Any) -> None:
    """Hold output and weights of ours to torch's in float64, by the rule."""
    exact = two.exact(
        *map(in_float64, tensors), **{name: in_float64(each) for name, each in keywords.items()}
    )
    as_float = {
        name: in_float64(each).float() if isinstance(each, Tensor) else each
        for name, each in keywords.items()
    }
    plain = two.theirs(*tensors, **as_float)
    found = two.ours(*tensors, **keywords)
    assert (found[1] is None) == (exact[1] is None)
    for name, *three in zip(("output", "weights"), found, exact, plain, strict=True):
        if three[0] is not None:
            assert_within_rule(*three, f"{name} under {sorted(keywords)}")
