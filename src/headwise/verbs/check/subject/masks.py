"""The shapes in which a mask is handed over: people write theirs with two, three or four axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

import torch
from torch import Tensor

from headwise.verbs.check.asking import Role
from headwise.verbs.check.subject.way import Asked

_SHAPED = (Role.MASK, Role.BIAS)
# The number of a form, by what was given: its role, its dtype and its number of axes.
Remembered = dict[tuple[Role, torch.dtype, int], int]


def options_to_try(asked: Asked, remembered: Remembered) -> Iterator[tuple[Mapping[Role, Any], Remembered]]:
    """Return the options with masks in every form, as they were given first; and which form each has.

    What worked before, in `remembered`, is the only one.
    """
    given = {role: mask for role in _SHAPED if isinstance(mask := asked.inputs.options.get(role), Tensor)}
    forms: list[list[tuple[Role, int, Tensor]]] = []
    for role, mask in given.items():
        known = remembered.get((role, mask.dtype, mask.dim()))
        numbers = range(len(_FORMS)) if known is None else [known]
        shaped = [(role, number, _FORMS[number](mask, asked)) for number in numbers]
        forms.append([(role, number, each) for role, number, each in shaped if each is not None])
    for chosen in product(*forms):
        masks = {role: mask for role, _, mask in chosen}
        used = {(role, given[role].dtype, given[role].dim()): number for role, number, _ in chosen}
        yield {**asked.inputs.options, **masks}, used


def _as_given(mask: Tensor, asked: Asked) -> Tensor | None:
    return mask


def _with_four_axes(mask: Tensor, asked: Asked) -> Tensor | None:
    """Return `[batch, heads, seq_len, kv_len]`, the first two as they are, or 1."""
    if mask.dim() == 2:
        mask = mask[None, None]
    elif mask.dim() == 3:
        mask = mask[:, None]
    return mask if mask.dim() == 4 else None


def _with_a_batch(mask: Tensor, asked: Asked) -> Tensor | None:
    """Return `[batch, heads or 1, seq_len, kv_len]`, its first axis as long as the batch."""
    four = _with_four_axes(mask, asked)
    return None if four is None else four.expand(asked.batch, *four.shape[1:])


def _of_each_text(mask: Tensor, asked: Asked) -> Tensor | None:
    """Return `[batch, seq_len, kv_len]`, where it is the same for every head."""
    four = _with_a_batch(mask, asked)
    return None if four is None or not _is_same_along(four, 1) else four[:, 0]


def _of_all(mask: Tensor, asked: Asked) -> Tensor | None:
    """Return `[seq_len, kv_len]`, where it is the same for every text and head."""
    texts = _of_each_text(mask, asked)
    return None if texts is None or not _is_same_along(texts, 0) else texts[0]


def _of_each_head(mask: Tensor, asked: Asked) -> Tensor | None:
    """Return `[batch * num_heads, seq_len, kv_len]`, as torch.nn.MultiheadAttention wants it."""
    four = _with_a_batch(mask, asked)
    if four is None:
        return None
    return four.expand(-1, asked.way.sizes.num_heads, -1, -1).flatten(0, 1)


_FORMS: tuple[Callable[[Tensor, Asked], Tensor | None], ...] = (
    _as_given,
    _with_four_axes,
    _with_a_batch,
    _of_each_text,
    _of_all,
    _of_each_head,
)


def _is_same_along(mask: Tensor, axis: int) -> bool:
    first = mask.narrow(axis, 0, 1)
    return torch.equal(mask, first.expand_as(mask))
