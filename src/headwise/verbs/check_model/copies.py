"""Which heads' matrices are copies of each other, up to rounding, a factor and a sign.

Every matrix is first drawn together into a few dozen numbers by a random projection from both sides, which
keeps angles roughly; only those that point the same way there are compared entry by entry.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from headwise.verbs.check_model.result import Matrix
from headwise.verbs.check_model.weights import LayerWeights

ROUNDING = 0.02
"""Two matrices are copies where no more than this share of one is left when the other is taken off it.

Between heads of real models 0.48 was the least that was found (SmolLM2-135M, two query heads of a group; 0.99
in MiniLM), and 16-bit rounding leaves 0.002, 8-bit quantisation 0.01.
"""
SKETCH = 6
LIKELY = 0.99
"""Least cosine of two sketches that are looked at closely; that of matrices as near as `ROUNDING` is more."""


class Item(NamedTuple):
    """One head's matrix: the place of its layer among those examined, and its number."""

    layer: int
    head: int


@dataclass(frozen=True)
class Likeness:
    """How a matrix follows from the first of its kind: `factor` times it, up to `difference`.

    `bias_too` says whether the biases follow by the same factor; None where there are none.
    """

    of: Item
    factor: float
    difference: float
    bias_too: bool | None


Copies = dict[Item, Likeness]


def find_copies(matrix: Matrix, layers: Sequence[LayerWeights]) -> Copies:
    """Return every head whose matrix is a copy of one before it, with the first of its kind.

    Layers that hold the very same parameter are looked at once, and matrices of zeros are no copies.
    """
    found: Copies = {}
    for places in _by_shape(matrix, layers).values():
        items, sketches = _sketches(matrix, layers, places)
        is_first = torch.ones(len(items), dtype=torch.bool)
        for number, item in enumerate(items):
            alike = (sketches[:number] @ sketches[number]).abs() >= LIKELY
            likely = torch.nonzero(alike & is_first[:number]).flatten().tolist()
            likenesses = (_likeness(matrix, layers, items[first], item) for first in likely)
            likeness = next((each for each in likenesses if each is not None), None)
            if likeness is not None:
                found[item], is_first[number] = likeness, False
    return found


def tied_layers(layers: Sequence[LayerWeights]) -> Iterator[tuple[int, int]]:
    """Yield the places of layers whose matrices are the same parameters: the first, and the other."""
    seen: dict[object, int] = {}
    for place, layer in enumerate(layers):
        memory = tuple(sorted((matrix, layer.memory(matrix)) for matrix in layer.sources))
        if memory and seen.setdefault(memory, place) != place:
            yield seen[memory], place


def _by_shape(matrix: Matrix, layers: Sequence[LayerWeights]) -> dict[tuple[int, int], list[int]]:
    """Return the places of layers by the shape of one head's matrix, those of one parameter once."""
    found: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    seen: set[object] = set()
    for place, layer in enumerate(layers):
        if matrix in layer.sources and layer.memory(matrix) not in seen:
            seen.add(layer.memory(matrix))
            found[layer.shape(matrix)].append(place)
    return found


def _sketches(
    matrix: Matrix, layers: Sequence[LayerWeights], places: Sequence[int]
) -> tuple[list[Item], Tensor]:
    """Return the matrices that are not 0, and their sketches, each of length 1."""
    generator = torch.Generator().manual_seed(0)
    items: list[Item] = []
    drawn: list[Tensor] = []
    sides: tuple[Tensor, Tensor] | None = None
    for place in places:
        heads = layers[place].heads(matrix).cpu()
        if sides is None:
            sides = (
                torch.randn(SKETCH, heads.shape[1], generator=generator),
                torch.randn(heads.shape[2], SKETCH, generator=generator),
            )
        small = (sides[0] @ heads @ sides[1]).flatten(1).double()
        for head in torch.nonzero(small.abs().amax(dim=1)).flatten().tolist():
            items.append(Item(place, head))
            drawn.append(small[head] / small[head].norm())
    return items, torch.stack(drawn) if drawn else torch.zeros(0, SKETCH**2)


def _likeness(matrix: Matrix, layers: Sequence[LayerWeights], first: Item, other: Item) -> Likeness | None:
    # Layers of one model may lie on several devices.
    one, two = (layers[item.layer].heads(matrix)[item.head].cpu().double() for item in (first, other))
    factor = float((one * two).sum() / one.square().sum())
    difference = float((two - factor * one).norm() / two.norm())
    if difference > ROUNDING:
        return None
    biases = [layers[item.layer].biases(matrix) for item in (first, other)]
    bias_too = None
    if biases[0] is not None and biases[1] is not None:
        before, after = biases[0][first.head].cpu().double(), biases[1][other.head].cpu().double()
        bias_too = bool((after - factor * before).norm() <= ROUNDING * after.norm())
    return Likeness(first, factor, difference, bias_too)
