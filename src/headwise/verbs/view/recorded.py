"""What is recorded of each layer, and how it becomes the numbers of a view."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from headwise.evidence import STATISTICS, Collect, Evidence
from headwise.models.attachment import AttachedLayer, LayerKey
from headwise.verbs.view.result import HeadSummary, LayerMaps

THUMBNAIL_SIZE = 64
FOCUS_MAP_SIZE = 256
"""Cells a side of the map of a layer looked at closely whose weights are not kept."""
TOP_K = 8
FULL_WEIGHTS_KEYS = 256
"""Up to this many keys the weights of every layer are kept; beyond it, those of the layer asked for."""
WEIGHTS_BYTES = 256_000_000
"""As many bytes of weights are kept, of all layers or of the layer asked for; more are not."""
FLOAT_BYTES = 4


def what_to_collect(
    places: Mapping[int, AttachedLayer],
    *,
    seq_len: int,
    kv_len: int,
    focus_layer: int | None,
    rows: Sequence[int],
) -> dict[LayerKey, Collect]:
    """Return what to record of each layer, so that memory grows with seq_len and not with its square.

    Args:
        places: the layers to record.
        seq_len: how many queries a head has, or about how many.
        kv_len: how many keys, or about how many.
        focus_layer: the layer to look at closely.
        rows: queries whose exact weights are wanted.

    """
    sizes = {layer: place.num_heads * seq_len * kv_len * FLOAT_BYTES for layer, place in places.items()}
    keep_all = max(seq_len, kv_len) <= FULL_WEIGHTS_KEYS and sum(sizes.values()) <= WEIGHTS_BYTES
    wanted: dict[LayerKey, Collect] = {}
    for layer, place in places.items():
        focused = layer == focus_layer
        whole = keep_all or (focused and sizes[layer] <= WEIGHTS_BYTES)
        map_size = FOCUS_MAP_SIZE if focused and not whole else THUMBNAIL_SIZE
        wanted[place] = Collect(weights=whole, map_size=map_size, top_k=TOP_K, rows=rows)
    return wanted


def layer_maps(place: AttachedLayer, evidence: Evidence[torch.Tensor], rows: Sequence[int] = ()) -> LayerMaps:
    """Return what was recorded of one layer; `rows` are the queries that were asked for, in their order."""
    exact = _if_collected(evidence.row_weights)
    if exact is not None:
        exact = exact[:, np.argsort(Collect(rows=rows).rows_of(evidence.entropy.shape[-1]))]
    return LayerMaps(
        layer=place.layer,
        num_heads=place.num_heads,
        num_kv_heads=place.num_kv_heads,
        thumbnails=_first(evidence.map),
        top_weights=_first(evidence.top_weights),
        top_keys=_first(evidence.top_keys),
        rows={statistic.name: _first(getattr(evidence, statistic.name)) for statistic in STATISTICS},
        weights=_if_collected(evidence.weights),
        sink=_if_collected(evidence.sink),
        exact_weights=exact,
        name=place.name,
    )


def summaries(place: AttachedLayer, evidence: Evidence[torch.Tensor]) -> Iterator[HeadSummary]:
    """Yield one number a statistic for each head of a layer."""
    means = evidence.per_head()
    for head in range(place.num_heads):
        numbers = {statistic.name: _known(means[statistic.name][head]) for statistic in STATISTICS}
        yield HeadSummary(layer=place.layer, head=head, kv_head=head // place.group_size, **numbers)


def _if_collected(recorded: torch.Tensor | None) -> Any:
    return None if recorded is None else _first(recorded)


def _first(recorded: torch.Tensor | None) -> Any:
    """Return the only batch element as an array, floating point as float32."""
    if recorded is None:  # what view asks for is always collected
        raise ValueError("this evidence was not collected")
    one = recorded[0]
    return (one.float() if one.is_floating_point() else one).numpy(force=True)


def _known(mean: np.float64) -> float | None:
    return None if np.isnan(mean) else float(mean)
