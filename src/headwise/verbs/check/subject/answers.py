"""What a call returned, read: which of it is the output, which the weights, which a cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwise.errors import SubjectError
from headwise.verbs.check.asking import Form
from headwise.verbs.check.subject.arrays import as_tensor
from headwise.verbs.check.subject.caller import Returned
from headwise.verbs.check.subject.way import Asked, turned
from headwise.verbs.check.subject.words import plain

_NOT_OUTPUT = ("weights", "attn", "attentions", "lse", "logsumexp", "present", "past", "cache", "scores")


@dataclass(frozen=True)
class Shapes:
    """The shapes that parts of the answer can have, in the axes as the subject is handed them."""

    outputs: tuple[tuple[int, ...], ...]
    weights: tuple[tuple[int, ...], ...]
    logsumexp: tuple[int, ...]


class Parts(NamedTuple):
    """The parts of what was returned, the place of the output among them, and the axes that it stands in."""

    output: Tensor
    place: int
    shape: int  # which of the shapes of the output it has
    weights: Tensor | None
    logsumexp: Tensor | None
    rest: Any


def shapes_of(asked: Asked, axes: str, widths: tuple[int, ...]) -> Shapes:
    """Return the shapes that an answer can have, the output's likeliest first.

    Args:
        asked: the call.
        axes: the order of axes in which its tensors were handed over.
        widths: how wide an output of the forms other than HEADS can be.

    """
    sizes, seq_len = asked.way.sizes, asked.seq_len
    row = (asked.batch,) if asked.way.has_batch else ()
    kv_len = asked.seen + asked.kv_len
    if asked.way.form is Form.HEADS:
        heads, width = sizes.num_heads, sizes.value_head_dim
        split = (*row, heads, seq_len, width), (*row, seq_len, heads, width)
        # Some give back the other order, or join the heads, as the layers of transformers want them.
        joined = (*row, seq_len, heads * width)
        outputs = [*(split if axes == "bhqd" else split[::-1]), joined]
    else:
        swapped = axes == "qbd" and asked.way.has_batch
        rows = (seq_len, *row) if swapped else (*row, seq_len)
        outputs = [(*rows, width) for width in widths]
    return Shapes(
        tuple(outputs),
        ((*row, sizes.num_heads, seq_len, kv_len), (*row, seq_len, kv_len)),
        (*row, sizes.num_heads, seq_len),
    )


def parts_of(returned: Returned, shapes: Shapes, *, name: str, place: int | None) -> Parts:
    """Return the parts of what was returned.

    Args:
        returned: what it was.
        shapes: those that the parts can have.
        name: of the subject, for messages.
        place: where the output was before, to be kept to where weights have the same shape; None if unknown.

    Raises:
        SubjectError: no part of it is a tensor of floating-point numbers with the shape of the output.

    """
    items = _items(returned.value)
    tensors = [(place, each) for place, each in enumerate(items) if isinstance(each, Tensor)]
    if not tensors:
        raise SubjectError(
            f"{name} returned {_words(returned.value)}, no tensor; it was asked with {returned.told}"
        )
    fitting = [
        (at != place, shapes.outputs.index(tuple(each.shape)), at)
        for at, each in tensors
        if tuple(each.shape) in shapes.outputs
    ]
    if not fitting:
        raise SubjectError(
            f"{name} returned {_words(returned.value)}; the output must have the shape "
            f"{' or '.join(str(list(shape)) for shape in shapes.outputs[:2])}, as it was asked with "
            f"{returned.told}"
        )
    _, shape, found = min(fitting)
    output = items[found]
    if not output.is_floating_point():
        raise SubjectError(
            f"{name} returned numbers of {output.dtype}; the output must be floating-point, as what it was "
            f"asked with: {returned.told}"
        )
    rest = [each for at, each in enumerate(items) if at != found]
    weights = _taken(rest, shapes.weights)
    logsumexp = _taken(rest, (shapes.logsumexp,))
    kept = [each for each in rest if each is not None]
    cache = kept[0] if len(kept) == 1 else tuple(kept) or None
    return Parts(output.detach(), found, shape, weights, logsumexp, cache)


def in_own_axes(parts: Parts, asked: Asked, axes: str) -> Tensor:
    """Return the output in the axes of `Form`, without a batch axis where there was none."""
    if asked.way.form is not Form.HEADS:
        return turned(parts.output, axes, has_batch=asked.way.has_batch)
    if parts.shape == 2:
        # [batch, seq_len, num_heads * width] -> [batch, seq_len, num_heads, width]
        split = parts.output.unflatten(-1, (asked.way.sizes.num_heads, -1))
        return turned(split, "bqhd", has_batch=asked.way.has_batch)
    other = {"bhqd": "bqhd", "bqhd": "bhqd"}
    return turned(parts.output, axes if parts.shape == 0 else other[axes], has_batch=asked.way.has_batch)


def _items(value: Any) -> list[Any]:
    """Return the output first, where names tell it, and whatever else there is."""
    if is_dataclass(value) and not isinstance(value, type | Mapping):
        value = vars(value)
    if isinstance(value, Mapping):
        # A dict or a ModelOutput: what is called weights, or the like, comes after what is not.
        named = sorted(
            value.items(), key=lambda item: any(word in plain(str(item[0])) for word in _NOT_OUTPUT)
        )
        return [as_tensor(each) for _, each in named]
    if isinstance(value, tuple | list):
        return [as_tensor(each) for each in value]
    return [as_tensor(value)]


def _taken(rest: list[Any], shapes: tuple[tuple[int, ...], ...]) -> Tensor | None:
    """Take the first tensor with one of the shapes out of what is left."""
    for place, each in enumerate(rest):
        if isinstance(each, torch.Tensor) and tuple(each.shape) in shapes:
            return rest.pop(place).detach()
    return None


def _words(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {', '.join(map(_words, value)) or 'nothing'}"
    if isinstance(value, Mapping):
        parts = ", ".join(f"{name}: {_words(each)}" for name, each in value.items())
        return f"a {type(value).__name__} of {parts or 'nothing'}"
    shown = as_tensor(value)
    if isinstance(shown, Tensor):
        return f"an array {list(shown.shape)}"
    return "None" if value is None else f"{type(value).__name__} {str(value)[:60]}"
