"""Which of a model's attention layers one view shows: those of one stack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from transformers import PreTrainedModel

from headwise.errors import ArgumentError, UnsupportedError
from headwise.models.attachment import AttachedLayer
from headwise.models.opening.opened_model import OpenedModel
from headwise.verbs.view.result import Part

PARTS: tuple[Part, ...] = get_args(Part)
USUAL_PART: Part = "cross"
"""What is shown of an encoder-decoder where nothing else is asked for: what only such a model has."""
SPEC = {
    "encoder": "the encoder's self-attention",
    "decoder": "the decoder's self-attention",
    "cross": "the decoder's attention to what the encoder read",
}


def check_part(opened: OpenedModel, part: str | None) -> Part | None:
    """Return which part of the model to show; None for a model of one stack.

    Raises:
        ArgumentError: there is no such part, or the model has no parts.

    """
    if part is not None and part not in PARTS:
        raise ArgumentError(f"part={part!r} is none of {', '.join(PARTS)}")
    if opened.model.config.is_encoder_decoder:
        return next((known for known in PARTS if known == part), USUAL_PART)
    if part is not None:
        raise ArgumentError(
            f"part={part} was asked for, and {opened.name} is no encoder-decoder; leave it out"
        )
    return None


def layers_of(
    opened: OpenedModel, places: Sequence[AttachedLayer], part: Part | None
) -> dict[int, AttachedLayer]:
    """Return the layers of one part by number, in order.

    Raises:
        UnsupportedError: there is none, two of them have the same number, so that they are several stacks, or
            one looks at another sequence in a model that is no encoder-decoder.

    """
    if part is None:
        _refuse_cross(opened, places)
    chosen = [place for place in places if part is None or _part_of(opened.model, place) == part]
    if not chosen:
        raise UnsupportedError(
            f"{opened.name} has no layer that is {SPEC[part or 'encoder']}; there is: "
            f"{', '.join(sorted({_part_of(opened.model, place) for place in places}))}"
        )
    found: dict[int, AttachedLayer] = {}
    for place in sorted(chosen, key=lambda place: place.layer):
        other = found.setdefault(place.layer, place)
        if other is not place:
            raise UnsupportedError(
                f"{opened.name} has several stacks of layers ({other.name} and {place.name} are both layer "
                f"{place.layer}), and view shows one; use attach() to record it from Python"
            )
    return found


def check_layer(layer: int | None, found: dict[int, AttachedLayer], opened: OpenedModel) -> None:
    """Refuse a layer that is not among those found.

    Raises:
        ArgumentError: it is not.

    """
    if layer is None or layer in found:
        return
    last = max(found)
    if len(found) == last + 1:
        there_is = f"{opened.name} has layers 0 to {last}"
    else:
        there_is = f"{opened.name} has attention heads in layers {', '.join(map(str, found))}"
    raise ArgumentError(f"layer={layer} does not exist; {there_is}")


def _refuse_cross(opened: OpenedModel, places: Sequence[AttachedLayer]) -> None:
    other = next((place for place in places if place.kind == "cross"), None)
    if other is not None:
        raise UnsupportedError(
            f"in {opened.name} {other.name} looks at another sequence than its own, and view shows models "
            "whose tokens look at each other, or encoder-decoders; use attach() to record it from Python"
        )


def _part_of(model: PreTrainedModel, place: AttachedLayer) -> Part:
    if place.kind == "cross":
        return "cross"
    inside = set(model.get_encoder().modules())
    return "encoder" if model.get_submodule(place.name) in inside else "decoder"
