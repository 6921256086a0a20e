"""Weights for a function that is given them as arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from headwise.verbs.check.asking import Sizes
from headwise.verbs.check.subject.held_maps import HeldMap, Order
from headwise.verbs.check.subject.stored import StoredMaps
from headwise.verbs.check.subject.unfusing import rows_of
from headwise.verbs.check.subject.weight_names import WeightRole


def drawn_weights(
    roles: Iterable[WeightRole], sizes: Sizes, *, order: Order, by_head: bool
) -> dict[WeightRole, Tensor]:
    """Return random weights and biases that keep the variance of what they map near 1.

    Args:
        roles: the parts.
        sizes: of the attention.
        order: of the axes of a matrix, `"in_out"` for `rows @ weight`.
        by_head: whether query, key, value and output have an axis of heads, before the two.

    """
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    weights: dict[WeightRole, Tensor] = {}
    joined = sizes.num_heads * sizes.value_head_dim
    for role in roles:
        if role.letters == "o":
            rows, width = sizes.d_model, joined
        else:
            rows, width = sum(rows_of(role.letters, sizes)), sizes.d_model
        if role.is_bias:
            weights[role] = drawn(rows) / 2
            continue
        matrix = drawn(width, rows) / width**0.5
        weights[role] = _stored(matrix, role.letters, sizes, order=order, by_head=by_head)
    return weights


def parts_of_weights(
    weights: Mapping[WeightRole, Tensor], names: Mapping[WeightRole, str]
) -> dict[str, StoredMaps]:
    """Return weights that were handed over as maps that say nothing of the order of their axes."""
    return {
        role.letters: StoredMaps(
            role.letters,
            (HeldMap(names[role], weight, None, None),),
            weights.get(WeightRole(role.letters, is_bias=True)),
        )
        for role, weight in weights.items()
        if not role.is_bias
    }


def _stored(matrix: Tensor, letters: str, sizes: Sizes, *, order: Order, by_head: bool) -> Tensor:
    """Return `[in, out]` in an order, with the heads apart where that is wanted and they are one part's."""
    if by_head and len(letters) == 1:
        heads = sizes.num_heads if letters in "qo" else sizes.num_kv_heads
        # of the output: [heads, width, out]; of the others: [in, heads, width] -> [heads, in, width]
        apart = (
            matrix.unflatten(0, (heads, -1))
            if letters == "o"
            else matrix.unflatten(1, (heads, -1)).transpose(0, 1)
        )
        return (apart if order == "in_out" else apart.transpose(1, 2)).contiguous()
    return (matrix if order == "in_out" else matrix.T).contiguous()
