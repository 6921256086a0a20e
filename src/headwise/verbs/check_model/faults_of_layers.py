"""Findings about what a layer computes, and about weights that are no numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from transformers.pytorch_utils import Conv1D

from headwise.models.attachment import AttachedLayer
from headwise.verbs.check_model.against_reference import Held
from headwise.verbs.check_model.finite import Spoiled
from headwise.verbs.check_model.result import MATRICES, WRITTEN, Finding, HeadPlace, Matrix
from headwise.verbs.check_model.weights import LayerWeights
from headwise.verbs.check_model.words import head_numbers
from headwise.verbs.terminal import several


def wrong_attention(layer: AttachedLayer, held: Held, implementation: str) -> Finding:
    """Return that a layer's attention is not that of the definition."""
    heads = held.wrong_heads
    which = "all its heads" if len(heads) == layer.num_heads else head_numbers(heads)
    return Finding(
        "attention-differs",
        layer.layer,
        layer.name,
        f"its attention ({implementation}) is off by {held.error:.3g} in {which}, where {held.allowed:.2g} "
        f"is allowed and the largest value is {held.largest:.3g}",
        heads=tuple(HeadPlace(layer.layer, layer.name, head) for head in heads),
        numbers={
            "error": held.error,
            "allowed": held.allowed,
            "largest": held.largest,
            "rows": held.rows,
        },
        mend=(
            "hold the attention function itself against the reference (headwise check FILE.py:NAME), which "
            "names the fault"
        ),
    )


def spoiled_input(layers: Sequence[AttachedLayer]) -> Finding:
    """Return that layers were given what is no number; the first of them is where to look."""
    first = layers[0]
    more = f", as {several(len(layers) - 1, 'layer')} behind it are" if len(layers) > 1 else ""
    return Finding(
        "non-finite-input",
        first.layer,
        first.name,
        f"its query, key or value are NaN or infinite on this text, though its weights are not{more}",
        numbers={"layers": len(layers)},
        mend="something before it overflows or divides by 0: try float32, or look at its MLPs and norms",
    )


def spoiled_weights(
    spoiled: Sequence[Spoiled], layers: Sequence[LayerWeights], places: Sequence[AttachedLayer]
) -> Iterator[Finding]:
    """Yield every parameter with NaN or infinity in it, and whose heads they are in where that is known."""
    for each in spoiled:
        owners = [layer for layer in layers if _matrices_of(layer, each)]
        inside = next((place for place in places if each.name.startswith(f"{place.name}.")), None)
        place = owners[0].layer if owners else inside
        count = several(each.count, "entry" if each.count == 1 else "entrie")
        words = f"{each.name} has {count} that {'is' if each.count == 1 else 'are'} NaN or infinite"
        heads = _heads_in(owners[0], each) if owners else {}
        where = [
            f"{'KV ' if matrix in {'key', 'value'} else ''}{head_numbers(numbers)} of {WRITTEN[matrix]}"
            for matrix, numbers in heads.items()
            if numbers
        ]
        yield Finding(
            "non-finite-weights",
            None if place is None else place.layer,
            None if place is None else place.name,
            f"{words}, in {', '.join(where)}" if where else words,
            heads=_places(place, heads, ("query", "output")),
            kv_heads=_places(place, heads, ("key", "value")),
            matrices=tuple(matrix for matrix in MATRICES if heads.get(matrix)),
            numbers={"count": each.count},
            mend=(
                "take the weights from a sound copy: everything behind them is NaN; the rest was examined "
                "with 0 in their place"
            ),
        )


def _matrices_of(layer: LayerWeights, spoiled: Spoiled) -> tuple[Matrix, ...]:
    return tuple(
        matrix
        for matrix in MATRICES
        if matrix in layer.sources and layer.sources[matrix].name == spoiled.module
    )


def _heads_in(layer: LayerWeights, spoiled: Spoiled) -> dict[Matrix, list[int]]:
    """Return the heads with such entries in each matrix that the parameter holds."""
    found: dict[Matrix, list[int]] = {}
    for matrix in _matrices_of(layer, spoiled):
        source, where = layer.sources[matrix], spoiled.where
        if where.dim() == 1:
            if matrix == "output":  # its bias is no head's
                continue
            rows = where
        else:
            # [out, in], in Conv1D [in, out] -> by output column, and of the output projection by input column
            turned = isinstance(source.module, Conv1D) != (matrix == "output")
            rows = torch.any(where, dim=0 if turned else 1)
        begins = sorted(set(source.begins))
        found[matrix] = [
            head for head, begin in enumerate(begins) if bool(rows[begin : begin + source.width].any())
        ]
    return found


def _places(
    place: AttachedLayer | None, heads: dict[Matrix, list[int]], matrices: tuple[Matrix, ...]
) -> tuple[HeadPlace, ...]:
    if place is None:
        return ()
    numbers = sorted({head for matrix in matrices for head in heads.get(matrix, ())})
    return tuple(HeadPlace(place.layer, place.name, head) for head in numbers)
