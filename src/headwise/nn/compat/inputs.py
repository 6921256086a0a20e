"""What the stand-in for `torch.nn.MultiheadAttention` may be made and called with."""

from __future__ import annotations

from torch import Tensor

from headwise.counts import checked_size, divisors, either
from headwise.errors import ArgumentError


def check_sizes(embed_dim: int, num_heads: int, kdim: int | None, vdim: int | None) -> None:
    """Refuse sizes that cannot be.

    Raises:
        ArgumentError: a size is no positive integer, or the heads do not divide the width.

    """
    embed_dim = checked_size("embed_dim", embed_dim)
    num_heads = checked_size("num_heads", num_heads)
    if embed_dim % num_heads:
        nearest = sorted(sorted(divisors(embed_dim), key=lambda count: abs(count - num_heads))[:2])
        raise ArgumentError(
            f"num_heads={num_heads} does not divide embed_dim={embed_dim}; use {either(nearest)}, or "
            "headwise.MultiHeadAttention, whose head_dim is independent of the width"
        )
    for name, width in (("kdim", kdim), ("vdim", vdim)):
        if width is not None:
            checked_size(name, width)


def check_inputs(
    query: Tensor, key: Tensor, value: Tensor, *, widths: tuple[int, int, int], batch_first: bool
) -> None:
    """Refuse inputs of other ranks, widths, batch sizes or lengths than fit together.

    Raises:
        ArgumentError: one does not fit.

    """
    axes = "[batch, length, {}]" if batch_first else "[length, batch, {}]"
    axes = axes if query.dim() == 3 else "[length, {}]"
    named = {"query": query, "key": key, "value": value}
    for (name, given), width in zip(named.items(), widths, strict=True):
        if query.dim() not in (2, 3) or given.dim() != query.dim() or given.shape[-1] != width:
            raise ArgumentError(
                f"{name} has shape {tuple(given.shape)}; it must be {axes.format(width)}, and all three with "
                "a batch or none; batch_first, kdim and vdim set the order of the axes and the widths"
            )
    batch_axis = 0 if batch_first else 1
    is_one_batch = query.dim() == 2 or query.shape[batch_axis] == key.shape[batch_axis]
    if not is_one_batch or key.shape[:-1] != value.shape[:-1]:
        shapes = ", ".join(f"{name} {tuple(given.shape)}" for name, given in named.items())
        raise ArgumentError(
            f"batch sizes, or the lengths of key and value, differ: {shapes}; the axes are "
            f"{axes.format('width')}: is batch_first={batch_first} meant?"
        )
