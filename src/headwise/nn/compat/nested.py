"""Nested tensors: texts of unequal length, one after the other without padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from headwise.errors import ArgumentError
from headwise.masks import Causal, Mask, Packed


class Joined(NamedTuple):
    """The texts of a nested tensor side by side, `[tokens, width]`, and how long each is."""

    tokens: Tensor
    lengths: tuple[int, ...]


def check_call(given: Sequence[str]) -> None:
    """Refuse what cannot be combined with nested tensors, named as `given`.

    Raises:
        ArgumentError: there is any.

    """
    if given:
        raise ArgumentError(
            f"nested tensors cannot be combined with {', '.join(given)}; leave that out, or pass padded "
            "tensors, nested.to_padded_tensor(0.0), and a key_padding_mask"
        )


def joined(*, query: Tensor, key: Tensor, value: Tensor) -> tuple[Joined, Joined, Joined]:
    """Return the texts of each, `[batch, length of each text, width]`, side by side.

    Equal tensors stay one and the same, so that self-attention is known as such.

    Raises:
        ArgumentError: one is not nested, or they differ in the number of texts, or key and value in lengths.

    """
    named = {"query": query, "key": key, "value": value}
    for name, given in named.items():
        if not given.is_nested:
            raise ArgumentError(
                f"{name} is not nested and another input is; pass nested tensors for all three or for none"
            )
    by_identity = {id(given): _side_by_side(given) for given in named.values()}
    queries, keys, values = (by_identity[id(given)] for given in named.values())
    if len(queries.lengths) != len(keys.lengths) or keys.lengths != values.lengths:
        raise ArgumentError(
            f"nested query, key and value have texts of lengths {queries.lengths}, {keys.lengths} and "
            f"{values.lengths}; there must be as many of each, and each key needs its value"
        )
    return queries, keys, values


def packed(query: Joined, key: Joined, *, is_causal: bool) -> Mask:
    """Return the mask by which each text sees itself, or the text in its place among the keys.

    Raises:
        ArgumentError: causal order is asked for between texts of different lengths.

    """
    if query.lengths == key.lengths:
        own = Packed(query.lengths)
        return own & Causal() if is_causal else own
    if is_causal:
        raise ArgumentError(
            f"is_causal=True with nested tensors of different lengths, query {query.lengths} and key "
            f"{key.lengths}; it needs as many keys as queries: call the module on one text after the other"
        )
    return Packed(query.lengths, key.lengths)


def parted(tokens: Tensor, like: Tensor) -> Tensor:
    """Return `tokens`, `[tokens, width]`, as a nested tensor of the lengths and the layout of `like`."""
    if like.layout == torch.jagged and like.lengths() is None:  # type: ignore[attr-defined]  # jagged ones have it
        # The same offsets make it one shape with `like`, so that the two can be added.
        return torch.nested.nested_tensor_from_jagged(tokens, like.offsets())  # type: ignore[attr-defined]
    texts = torch.split(tokens, [len(text) for text in like.unbind()])
    return torch.nested.as_nested_tensor(list(texts), layout=like.layout)


def _side_by_side(given: Tensor) -> Joined:
    texts = given.unbind()
    return Joined(torch.cat(texts), tuple(len(text) for text in texts))
