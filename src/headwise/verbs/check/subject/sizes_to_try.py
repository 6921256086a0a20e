"""The sizes that a subject which leaves them open is asked with: the most telling ones it can do."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.counts import divisors
from headwise.verbs.check.asking import Sizes
from headwise.verbs.check.subject.hints import Hints

# Neither a number of heads nor, with two KV heads, their share is the other; no KV width is a multiple of 6.
NUM_HEADS, NUM_KV_HEADS = 6, 2
# Of query and key, and of value. Odd ones first, then even ones for rotary positions, then powers of two.
_WIDTHS = ((7, 11), (7, 7), (10, 14), (10, 10), (16, 16), (64, 64))
# No multiple of the number of heads, and nobody's width of all heads side by side.
_FREE_WIDTH = 40

# For `softmax(q @ k.T) @ v` of two axes. No number of heads that it could have divides the width of its rows.
ONE_HEAD = tuple(Sizes(1, 1, width, value_width, width) for width, value_width in _WIDTHS[:2])


def sizes_to_try(hints: Hints, *, free_width: bool) -> Iterator[Sizes]:
    """Return sizes, the most telling first: values of another width than keys, fewer KV heads than heads.

    Args:
        hints: the sizes that are known.
        free_width: whether d_model can be another than the width of all heads side by side.

    """
    widths = [_FREE_WIDTH] if free_width and hints.d_model is None else []
    for free in [*widths, None]:
        for head_dim, value_head_dim in _head_widths(hints):
            for num_heads, num_kv_heads in _counts(hints):
                joined = num_heads * head_dim
                d_model = hints.d_model.value if hints.d_model is not None else free or joined
                if free is not None and d_model == joined:
                    continue
                yield Sizes(num_heads, num_kv_heads, head_dim, value_head_dim, d_model)


def _counts(hints: Hints) -> list[tuple[int, int]]:
    """Return numbers of heads and of KV heads."""
    if hints.num_heads is not None:
        num_heads = hints.num_heads.value
    elif hints.num_kv_heads is not None:
        num_heads = 3 * hints.num_kv_heads.value
    else:
        num_heads = NUM_HEADS
    if hints.num_kv_heads is not None:
        return [(num_heads, hints.num_kv_heads.value)]
    fewer = [count for count in divisors(num_heads) if 1 < count < num_heads]
    return [(num_heads, fewer[0]), (num_heads, num_heads)] if fewer else [(num_heads, num_heads)]


def _head_widths(hints: Hints) -> list[tuple[int, int]]:
    """Return widths of a head of query and key, and of value."""
    if hints.head_dim is None and hints.d_model is not None and hints.num_heads is not None:
        width = hints.d_model.value // hints.num_heads.value
        known: tuple[tuple[int, int], ...] = ((width, width),)
    elif hints.head_dim is not None:
        width = hints.head_dim.value
        known = ((width, width + 4), (width, width))
    else:
        known = _WIDTHS
    if hints.value_head_dim is not None:
        value = hints.value_head_dim.value
        return list(dict.fromkeys((width, value) for width, _ in known))
    return list(known)
