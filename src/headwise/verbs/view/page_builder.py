"""Puts one self-contained page together: skeleton, style, scripts, the JSON header and the packed blocks.

The page opens from a file URL and asks the network for nothing: a content security policy allows exactly the
style and the script that stand in it, by their hashes. Data are never code: the header is JSON with every
character escaped that HTML or a script could take for its own, the blocks are base64.
"""

from __future__ import annotations

import base64
import gzip
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

# Later scripts use the names of earlier ones.
SCRIPTS = (
    "words", "ink", "data", "axis", "heads", "state", "strip", "text", "maplayout", "mapink", "mapwords",
    "headmap", "caption", "matrix", "arcs", "readings", "siblings", "bench", "csv", "figure", "headpicture",
    "mappicture", "save", "mapzone", "facts", "keys", "main",
)  # fmt: skip
DTYPES = ("uint8", "uint16", "uint32", "float32")
BLOCK_NAME = re.compile(r"[a-z_]+/[0-9]+(/[a-z_]+)?")


def build_page(header: dict[str, Any], blocks: dict[str, NDArray[Any]]) -> str:
    """Build the page of `headwise view` as one HTML document.

    Args:
        header: the JSON header; `tests/verbs/page_data.py` shows every field.
        blocks: arrays by name. For each layer `thumbnails/{layer}` `[num_heads, t, t]`,
            `top_keys/{layer}` and `top_weights/{layer}` `[num_heads, seq_len, top_k]`; where the layer's
            `tile` is true `weights/{layer}` `[num_heads, seq_len, seq_len]`; where its `sink` is true
            `sink/{layer}` `[num_heads, seq_len]`; optionally `rows/{layer}/{statistic}`
            `[num_heads, seq_len]`. A uint8 code c stands for the weight (c / 255) ** 2.

    Returns:
        The document; written as UTF-8 it opens from a file URL.

    Raises:
        ArgumentError: a block is missing, has a shape or type the page cannot read, or an unknown name.

    Example:
        >>> code = np.full((1, 1, 1), 255, dtype=np.uint8)
        >>> keys = np.zeros((1, 1, 1), dtype=np.uint16)
        >>> blocks = {"thumbnails/0": code, "top_keys/0": keys, "top_weights/0": code}
        >>> layer = {"layer": 0, "num_heads": 1, "num_kv_heads": 1, "sink": False, "tile": False}
        >>> sizes = {"seq_len": 1, "thumbnail_size": 1, "top_k": 1, "statistics": []}
        >>> page = build_page({"model": {"name": "tiny"}, "layers": [layer], **sizes}, blocks)
        >>> page.startswith("<!DOCTYPE html>")
        True

    """
    _check(header, blocks)
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
        "blocks": "\n".join(_carrier(name, block) for name, block in blocks.items()),
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
    for layer in header["layers"]:
        for name, shape in _shapes(header, layer).items():
            if name not in blocks and name.startswith("rows/"):
                continue
            if name not in blocks:
                raise ArgumentError(f"block {name!r} is missing; the header announces it with shape {shape}")
            if blocks[name].shape != shape:
                raise ArgumentError(
                    f"block {name!r} has shape {blocks[name].shape}; the header announces {shape}"
                )


def _shapes(header: dict[str, Any], layer: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    number, heads, count = layer["layer"], layer["num_heads"], header["seq_len"]
    small, kept = header["thumbnail_size"], header["top_k"]
    shapes: dict[str, tuple[int, ...]] = {
        f"thumbnails/{number}": (heads, small, small),
        f"top_keys/{number}": (heads, count, kept),
        f"top_weights/{number}": (heads, count, kept),
    }
    if layer["tile"]:
        shapes[f"weights/{number}"] = (heads, count, count)
    if layer["sink"]:
        shapes[f"sink/{number}"] = (heads, count)
    for statistic in header["statistics"]:
        shapes[f"rows/{number}/{statistic['key']}"] = (heads, count)
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


def _carrier(name: str, block: NDArray[Any]) -> str:
    little = np.ascontiguousarray(block.astype(block.dtype.newbyteorder("<"), copy=False))
    # Bytes of one rank together: gzip packs, say, the high bytes of keys to almost nothing.
    planes = little.reshape(-1).view(np.uint8).reshape(-1, block.dtype.itemsize).T
    # mtime=0: the same data give the same file.
    packed = base64.b64encode(gzip.compress(planes.tobytes(), compresslevel=9, mtime=0)).decode("ascii")
    return (
        f'<script type="application/octet-stream" data-name="{name}" data-dtype="{block.dtype.name}">'
        f"{packed}</script>"
    )
