"""A view as one self-contained HTML page: this module turns the numbers into the page's header and blocks."""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import ArgumentError
from headwise.evidence import STATISTICS
from headwise.verbs.view.page_builder import build_page
from headwise.verbs.view.render_json import head_to_json
from headwise.verbs.view.result import Float32, LayerMaps, View
from headwise.version import __version__

TILE_BUDGET_BYTES = 8_000_000
"""Full-resolution maps of all layers go into the page while they take no more than this, uncompressed."""
ROW_BUDGET_BYTES = 4_000_000
"""The same for the exact statistics of every row."""

CAVEATS = (
    "Attention is not explanation: a large weight need not matter to the output, and other weights can give "
    "the same prediction. What a head does is a hypothesis to test by ablation, and ablation is a lower "
    "bound, since later layers make up for what is removed."
)


def write_page(view: View, path: Path) -> Path:
    """Write the page of `view` to `path`, whole or not at all, and return the path.

    Raises:
        ArgumentError: the file cannot be written.

    """
    page = build_page(*page_data(view))
    # With the process in its name, for two may write the same page at once.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        unfinished.write_text(page, encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        raise ArgumentError(
            f"cannot write --out {path}: {error.strerror}; choose a file you may write"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
    return path


def page_data(view: View) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the page's JSON header and its named arrays."""
    tiled = _layers_with_tiles(view)
    header = {
        "format": 1,
        "program": {"name": "headwise", "version": __version__},
        "model": asdict(view.facts),
        "tokens": [asdict(token) for token in view.tokens],
        "next_tokens": [asdict(token) for token in view.next_tokens],
        "layers": [
            {
                "layer": maps.layer,
                "num_heads": maps.num_heads,
                "num_kv_heads": maps.num_kv_heads,
                "sink": maps.sink is not None,
                "tile": maps.layer in tiled,
            }
            for maps in view.layers
        ],
        "statistics": [
            {
                "key": statistic.key,
                "label": statistic.label,
                "unit": statistic.unit,
                "definition": statistic.definition,
            }
            for statistic in STATISTICS
        ],
        "heads": [head_to_json(head) for head in view.heads],
        "seq_len": len(view.tokens),
        "thumbnail_size": int(view.layers[0].thumbnails.shape[-1]),
        "top_k": int(view.layers[0].top_keys.shape[-1]),
        "reference": "eager",
        "max_logit_difference": view.max_logit_difference,
        "focus_layer": view.focus_layer,
        "caveats": CAVEATS,
    }
    blocks: dict[str, NDArray[Any]] = {}
    with_rows = _fits(ROW_BUDGET_BYTES, [rows for maps in view.layers for rows in maps.rows.values()], 4)
    for maps in view.layers:
        blocks |= _layer_blocks(maps, tile=maps.layer in tiled, rows=with_rows)
    return header, blocks


def _layers_with_tiles(view: View) -> set[int]:
    kept = [maps for maps in view.layers if maps.weights is not None]
    if _fits(TILE_BUDGET_BYTES, [maps.weights for maps in kept if maps.weights is not None], 1):
        return {maps.layer for maps in kept}
    return {maps.layer for maps in kept if maps.layer == view.focus_layer}


def _fits(budget: int, arrays: list[Float32], element_bytes: int) -> bool:
    return sum(array.size for array in arrays) * element_bytes <= budget


def _layer_blocks(maps: LayerMaps, *, tile: bool, rows: bool) -> dict[str, NDArray[Any]]:
    key_type = np.uint16 if maps.top_keys.size == 0 or maps.top_keys.max() < 2**16 else np.uint32
    blocks = {
        f"thumbnails/{maps.layer}": as_ink(maps.thumbnails),
        # A row that sees fewer keys than are kept has key -1 with weight 0 in the places left over.
        f"top_keys/{maps.layer}": np.maximum(maps.top_keys, 0).astype(key_type),
        f"top_weights/{maps.layer}": as_ink(maps.top_weights),
    }
    if tile and maps.weights is not None:
        blocks[f"weights/{maps.layer}"] = as_ink(maps.weights)
    if maps.sink is not None:
        blocks[f"sink/{maps.layer}"] = as_ink(maps.sink)
    if rows:
        for statistic in STATISTICS:
            blocks[f"rows/{maps.layer}/{statistic.key}"] = maps.rows[statistic.name]
    return blocks


def as_ink(weights: Float32) -> NDArray[np.uint8]:
    """Return weights in [0, 1] as 8-bit square roots, which are fine where weights are small."""
    return np.round(255 * np.sqrt(np.clip(weights, 0, 1))).astype(np.uint8)
