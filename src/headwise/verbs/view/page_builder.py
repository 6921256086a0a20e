"""Puts one self-contained page together: skeleton, style, scripts, the JSON header, the blocks in base64."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import ArgumentError
from headwise.verbs.page_file import filled_page, page_asset
from headwise.verbs.view.page_blocks import Packer

PACKAGE = "headwise.verbs.view"
# Later scripts use the names of earlier ones.
SCRIPTS = (
    "words", "ink", "patches", "data", "twins", "axis", "heads", "state", "strip", "text", "maplayout",
    "mapink", "mapsource", "mapwords", "headmap", "caption", "matrix", "arcs", "bridges", "readings",
    "siblings", "bench", "csv", "figure", "headpicture", "mappicture", "save", "mapzone", "facts", "keys",
    "main",
)  # fmt: skip
DTYPES = ("uint8", "uint16", "uint32", "float32")
BLOCK_NAME = re.compile(r"(second/)?[a-z_]+/[0-9]+(/[a-z_]+)?")


def build_page(
    header: dict[str, Any], blocks: dict[str, NDArray[Any]], *, packer: Packer | None = None
) -> str:
    """Build the page of `headwise view` as one HTML document.

    Args:
        header: the JSON header; `tests/verbs/page_data.py` shows every field. `against` is None, or the
            header of a second run whose blocks are named `second/...`.
        blocks: arrays by name. For each layer `thumbnails/{layer}` `[num_heads, map_rows, map_columns]`;
            where the layer's `tile` is true `weights/{layer}` `[num_heads, seq_len, kv_len]`, elsewhere
            `top_counts/{layer}` `[num_heads, seq_len]` and as many numbers as these count in
            `top_keys/{layer}` and `top_weights/{layer}`; where its `exact_rows` is true `exact/{layer}`
            `[num_heads, exact_rows, kv_len]`; where its `sink` is true `sink/{layer}` `[num_heads, seq_len]`;
            optionally `rows/{layer}/{statistic}` `[num_heads, seq_len]`. A uint8 code c stands for the weight
            (c / 255) ** 2.
        packer: what packed some of the blocks before, to be asked again.

    Returns:
        The document; written as UTF-8 it opens from a file URL.

    Raises:
        ArgumentError: a block is missing, has a shape or type the page cannot read, or an unknown name.

    Example:
        >>> code = np.full((1, 1, 1), 255, dtype=np.uint8)
        >>> layer = {"layer": 0, "num_heads": 1, "num_kv_heads": 1, "sink": False, "tile": True}
        >>> layer |= {"exact_rows": False, "map_rows": 1, "map_columns": 1}
        >>> sizes = {"seq_len": 1, "kv_len": 1, "exact_rows": [], "statistics": [], "image_grid": None}
        >>> header = {"model": {"name": "tiny"}, "layers": [layer], "against": None, **sizes}
        >>> page = build_page(header, {"thumbnails/0": code, "weights/0": code})
        >>> page.startswith("<!DOCTYPE html>")
        True

    """
    _check(header, blocks)
    return _document(header, blocks, packer or Packer())


def bare_size(header: dict[str, Any]) -> int:
    """Return the bytes of the page without its blocks."""
    return len(_document(header, {}, Packer()).encode("utf-8"))


def _document(header: dict[str, Any], blocks: dict[str, NDArray[Any]], packer: Packer) -> str:
    scripts = (page_asset(PACKAGE, f"{name}.js") for name in SCRIPTS)
    return filled_page(
        PACKAGE,
        title=f"{header['model']['name']}: every head",
        script="\n".join(['"use strict";', "(function () {", *scripts, "})();"]),
        header=_without_nan(header),
        # Pictures that are saved as PNG are drawn from an SVG that the page itself made.
        allowed=["img-src blob: data:"],
        blocks="\n".join(_carrier(name, block, packer) for name, block in blocks.items()),
    )


def _check(header: dict[str, Any], blocks: dict[str, NDArray[Any]]) -> None:
    for name, block in blocks.items():
        if not BLOCK_NAME.fullmatch(name):
            raise ArgumentError(f"block {name!r} has no name the page knows; names look like 'thumbnails/0'")
        if block.dtype.name not in DTYPES:
            raise ArgumentError(
                f"block {name!r} holds {block.dtype.name}; the page reads {', '.join(DTYPES)}: cast it first"
            )
    for run, prefix in ((header, ""), (header["against"], "second/")):
        if run:
            _check_grid(run)
        for layer in run["layers"] if run else ():
            _check_layer(run, layer, {name: prefix + name for name in _shapes(run, layer)}, blocks)


def _check_grid(run: dict[str, Any]) -> None:
    if run["image_grid"] is None:
        return
    rows, columns = run["image_grid"]
    if not 0 < rows * columns <= run["kv_len"]:
        raise ArgumentError(
            f"image_grid={(rows, columns)} has {rows * columns} patches, and there are {run['kv_len']} "
            "tokens to look at; give the rows and columns of the patches among them"
        )


def _check_layer(
    run: dict[str, Any], layer: dict[str, Any], names: dict[str, str], blocks: dict[str, NDArray[Any]]
) -> None:
    shapes = _shapes(run, layer)
    counts = blocks.get(names.get(f"top_counts/{layer['layer']}", ""))
    for plain, name in names.items():
        shape = shapes[plain]
        if shape is None:
            # As many entries as are counted; without the counts, it is they that are missing.
            shape = (0 if counts is None else int(counts.sum(dtype=np.int64)),)
        if name not in blocks and plain.startswith("rows/"):
            continue
        if name not in blocks:
            raise ArgumentError(f"block {name!r} is missing; the header announces it with shape {shape}")
        if blocks[name].shape != shape:
            raise ArgumentError(
                f"block {name!r} has shape {blocks[name].shape}; the header announces {shape}"
            )


def _shapes(run: dict[str, Any], layer: dict[str, Any]) -> dict[str, tuple[int, ...] | None]:
    """Return the shape of each block of a layer; None where another block decides it."""
    number, heads, rows, columns = layer["layer"], layer["num_heads"], run["seq_len"], run["kv_len"]
    shapes: dict[str, tuple[int, ...] | None] = {
        f"thumbnails/{number}": (heads, layer["map_rows"], layer["map_columns"])
    }
    if layer["tile"]:
        shapes[f"weights/{number}"] = (heads, rows, columns)
    else:
        shapes[f"top_counts/{number}"] = (heads, rows)
        shapes[f"top_keys/{number}"] = shapes[f"top_weights/{number}"] = None
    if layer["exact_rows"]:
        shapes[f"exact/{number}"] = (heads, len(run["exact_rows"]), columns)
    if layer["sink"]:
        shapes[f"sink/{number}"] = (heads, rows)
    for statistic in run["statistics"]:
        shapes[f"rows/{number}/{statistic['key']}"] = (heads, rows)
    return shapes


def _without_nan(value: Any) -> Any:
    # JSON has no NaN; a number that is missing is null.
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _without_nan(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(one) for one in value]
    return value


def _carrier(name: str, block: NDArray[Any], packer: Packer) -> str:
    return (
        f'<script type="application/octet-stream" data-name="{name}" data-dtype="{block.dtype.name}">'
        f"{packer.text(block)}</script>"
    )
