"""Puts one self-contained page together: skeleton, style, scripts, the JSON header and the packed blocks.

The page opens from a file URL and asks the network for nothing: a content security policy allows exactly the
style and the script that stand in it, by their hashes. Data are never code: the header is JSON with every
character escaped that HTML or a script could take for its own, the blocks are base64.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import ArgumentError
from headwise.verbs.view.page_blocks import Packer

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
    style = _asset("page.css")
    script = "\n".join(
        ['"use strict";', "(function () {", *(_asset(f"{name}.js") for name in SCRIPTS), "})();"]
    )
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src 'sha256-{_sha256(script)}'",
            f"style-src 'sha256-{_sha256(style)}'",
            # Pictures that are saved as PNG are drawn from an SVG that the page itself made.
            "img-src blob: data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    parts = {
        "policy": policy,
        "title": html.escape(f"{header['model']['name']}: every head"),
        "style": style,
        "header": _as_json(header),
        "blocks": "\n".join(_carrier(name, block, packer) for name, block in blocks.items()),
        "script": script,
    }
    # One pass over the skeleton: what is put in is not searched again.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], _asset("page.html"))


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


def _asset(name: str) -> str:
    return resources.files("headwise.verbs.view").joinpath("page", name).read_text(encoding="utf-8")


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _as_json(value: object) -> str:
    # JSON has no NaN; a number that is missing is null. Beyond ASCII everything is escaped, U+2028 among it.
    text = json.dumps(_without_nan(value), separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _without_nan(value: Any) -> Any:
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
