"""What `explain MODEL` was asked for, held to what there is: a token, a layer, a head."""

from __future__ import annotations

from collections.abc import Sequence

from headwise.errors import ArgumentError, UnsupportedError
from headwise.models.attachment import AttachedLayer
from headwise.models.tokens import Token


def checked_position(query: int | None, tokens: Sequence[Token]) -> int:
    """Return the position of the token that looks, from 0; the last one where none was asked for.

    Raises:
        ArgumentError: there is no such token.

    """
    count = len(tokens)
    position = count - 1 if query is None else query
    if isinstance(position, bool) or not isinstance(position, int) or not -count <= position < count:
        raise ArgumentError(
            f"query={query} does not exist; the text has {count} tokens: give 0 to {count - 1}, or -{count} "
            "to -1 from the end"
        )
    return position % count


def found_layer(layer: int, layers: Sequence[AttachedLayer], model: str) -> AttachedLayer:
    """Return the attention layer with this number.

    Raises:
        ArgumentError: there is none.
        UnsupportedError: there are several.

    """
    found = [place for place in layers if place.layer == layer]
    if len(found) > 1:
        raise UnsupportedError(
            f"{model} has {len(found)} layers with the number {layer}, and explain traces models of "
            "one stack; use attach() to record them from Python"
        )
    if not found:
        numbers = sorted({place.layer for place in layers})
        there_is = f"0 to {numbers[-1]}" if len(numbers) == numbers[-1] + 1 else ", ".join(map(str, numbers))
        raise ArgumentError(f"layer={layer} does not exist; the attention layers of {model} are {there_is}")
    return found[0]


def check_head(head: int, place: AttachedLayer) -> None:
    """Refuse a query head that the layer does not have.

    Raises:
        ArgumentError: it does not.

    """
    if head >= place.num_heads:
        raise ArgumentError(
            f"head={head} does not exist in layer {place.layer}, which has {place.num_heads} query heads; "
            f"give 0 to {place.num_heads - 1}"
        )
