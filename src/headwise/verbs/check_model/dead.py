"""Heads that do nothing: a matrix of theirs is zero or next to it, or they add next to nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from headwise.verbs.check_model.listening import HeardLayer
from headwise.verbs.check_model.result import MATRICES, WRITTEN, Finding, HeadPlace, Kind, Matrix
from headwise.verbs.check_model.weights import LayerWeights
from headwise.verbs.check_model.words import head_numbers, listed

NEAR_ZERO = 0.01
"""Below this share of the median of the layer's other heads a head counts as dead.

The least that was found in real models: 0.42 of the median norm of W_O slices, 0.58 of W_Q, W_K and W_V, and
0.21 of what a head adds to the output, on five texts (SmolLM2-135M; MiniLM 0.64, 0.59 and 0.33).
"""

DOES: dict[Matrix, str] = {
    "output": "nothing of what it does is written to the output",
    "value": "it has nothing to write",
    "query": "it looks at all keys alike, whatever the token",
    "key": "it looks at all keys alike, whatever they are",
}
KINDS: dict[Matrix, Kind] = {
    "output": "dead-output", "value": "dead-value", "query": "dead-query", "key": "dead-key",
}  # fmt: skip
"""In this order: the first of a head's matrices that is zero names the kind."""


class _Zeros(NamedTuple):
    """Which matrices of which query heads are zero, and the largest share of the median among them."""

    matrices: dict[int, tuple[Matrix, ...]]
    shares: dict[tuple[int, Matrix], float]


def dead_findings(layer: LayerWeights, heard: HeardLayer) -> Iterator[Finding]:
    """Yield the heads of a layer that are dead, those with the same matrices at zero together."""
    zeros = _zeros(layer)
    together: defaultdict[tuple[Matrix, ...], list[int]] = defaultdict(list)
    for head, matrices in zeros.matrices.items():
        together[matrices].append(head)
    for matrices, heads in together.items():
        yield _of_weights(layer, matrices, heads, zeros)
    if heard.added is not None:
        shares = _shares(heard.added)
        silent = [
            head
            for head, share in enumerate(shares)
            if share < NEAR_ZERO and not {"output", "value"} & set(zeros.matrices.get(head, ()))
        ]
        if silent:
            yield _of_text(layer, silent, max(shares[head] for head in silent))


def _zeros(layer: LayerWeights) -> _Zeros:
    matrices: defaultdict[int, tuple[Matrix, ...]] = defaultdict(tuple)
    shares: dict[tuple[int, Matrix], float] = {}
    for matrix in MATRICES:
        if matrix not in layer.sources:
            continue
        of_heads = _shares(layer.heads(matrix).flatten(1).norm(dim=1).tolist())
        for head in range(layer.layer.num_heads):
            share = of_heads[layer.number(matrix, head)]
            if share < NEAR_ZERO:
                matrices[head] += (matrix,)
                shares[head, matrix] = share
    return _Zeros(dict(matrices), shares)


def _shares(sizes: Sequence[float]) -> list[float]:
    """Return sizes as shares of the median of those that are not 0; where all are, 0."""
    alive = [size for size in sizes if size > 0]
    return [size / float(np.median(alive)) if alive else 0.0 for size in sizes]


def _of_weights(
    layer: LayerWeights, matrices: tuple[Matrix, ...], heads: Sequence[int], zeros: _Zeros
) -> Finding:
    place = layer.layer
    largest = max(zeros.shares[head, matrix] for head in heads for matrix in matrices)
    amount = "zero" if largest == 0 else f"next to zero (at most {largest:.2g} of the layer's median)"
    verb = "is" if len(matrices) == 1 else "are"
    worst = next(matrix for matrix in KINDS if matrix in matrices)
    return Finding(
        KINDS[worst],
        place.layer,
        place.name,
        f"{listed([WRITTEN[matrix] for matrix in matrices])} of {head_numbers(heads)} {verb} {amount}: "
        f"{DOES[worst]}",
        heads=_places(layer, heads),
        matrices=matrices,
        numbers={"share_of_median": largest},
        mend="if nobody pruned it on purpose, the weights were lost on the way: compare with the original",
    )


def _of_text(layer: LayerWeights, heads: Sequence[int], largest: float) -> Finding:
    place = layer.layer
    verb = "adds" if len(heads) == 1 else "add"
    return Finding(
        "silent-head",
        place.layer,
        place.name,
        f"{head_numbers(heads)} {verb} next to nothing to the output on this text (at most {largest:.2g} of "
        "the median head of the layer), though the weights are not zero",
        heads=_places(layer, heads),
        numbers={"share_of_median": largest},
        mend="check another text; a head that is silent on all of them can be pruned",
    )


def _places(layer: LayerWeights, heads: Sequence[int]) -> tuple[HeadPlace, ...]:
    return tuple(HeadPlace(layer.layer.layer, layer.layer.name, head) for head in heads)
