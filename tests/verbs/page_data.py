"""Made-up but lifelike data for the page: what `headwise view` hands to `build_page`, without a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.verbs.view.page_builder import build_page

Floats = NDArray[np.float64]

STATISTICS = [
    ("entropy", "entropy", "nats", "-sum of w log w over the visible keys; 0 when one key takes all"),
    ("first_token", "first token", "mass", "weight on the first visible token (the usual sink)"),
    ("previous_token", "previous token", "mass", "weight on the token just before the query"),
    ("self", "self", "mass", "weight on the query's own token"),
    ("mean_distance", "mean distance", "tokens", "sum of w times the distance from query to key"),
]
CAVEATS = (
    "Attention is not explanation: other weights can give the same prediction. "
    "What a head does is a hypothesis to test by ablation, and ablation is a lower bound."
)
SENTENCE = ["The", " bank", " raised", " rates", " because", " inflation", " was", " rising"]


@dataclass(frozen=True)
class Made:
    """A header, its blocks, and the exact weights `[num_heads, seq_len, seq_len]` of each layer."""

    header: dict[str, Any]
    blocks: dict[str, NDArray[Any]]
    weights: list[Floats]


def make(
    texts: list[str],
    *,
    layers: list[tuple[int, int]],
    causal: bool = True,
    sink: bool = False,
    tile: bool | None = None,
    top_k: int = 8,
    kinds: dict[int, str] | None = None,
    name: str = "smollm2-135m",
    row_statistics: bool = True,
    seed: int = 3,
) -> Made:
    """Data for `texts` and for layers of (num_heads, num_kv_heads)."""
    random = np.random.default_rng(seed)
    count = len(texts)
    small, kept = min(64, count), min(top_k, count)
    carried = count <= 256 if tile is None else tile
    blocks: dict[str, NDArray[Any]] = {}
    heads: list[dict[str, Any]] = []
    weights: list[Floats] = []
    for layer, (num_heads, num_kv_heads) in enumerate(layers):
        exact, sinks = _layer(random, num_heads, count, causal=causal, sink=sink, layer=layer)
        weights.append(exact)
        blocks[f"thumbnails/{layer}"] = _coded(_pooled(exact, small))
        if carried:
            blocks[f"weights/{layer}"] = _coded(exact)
        else:
            # The largest keys of each row, in the order of the text.
            order = np.sort(np.argsort(-exact, axis=2, kind="stable")[:, :, :kept], axis=2)
            top = _coded(np.take_along_axis(exact, order, axis=2))
            blocks[f"top_counts/{layer}"] = np.count_nonzero(top, axis=2).astype(np.uint8)
            blocks[f"top_keys/{layer}"] = order[top > 0].astype(np.uint16)
            blocks[f"top_weights/{layer}"] = top[top > 0]
        if sink:
            blocks[f"sink/{layer}"] = _coded(sinks)
        rows = _statistics(exact)
        if row_statistics:
            blocks |= {f"rows/{layer}/{key}": value.astype(np.float32) for key, value in rows.items()}
        for head in range(num_heads):
            means = {key: float(np.nanmean(value[head])) for key, value in rows.items()}
            heads.append({"layer": layer, "head": head, "kv_head": head * num_kv_heads // num_heads, **means})
    most = max(layers)
    tokens = [{"id": i, "text": text, "kind": (kinds or {}).get(i, "text")} for i, text in enumerate(texts)]
    following = [(" and", 0.231), (".", 0.184), (" faster", 0.0912), (",", 0.0733), (" again", 0.0105)]
    header = {
        "format": 2,
        "program": {"name": "headwise", "version": "0.1.0"},
        "model": {
            "name": name, "family": "llama" if causal else "bert", "layers": len(layers),
            "num_heads": most[0], "num_kv_heads": most[1], "head_dim": 64, "causal": causal,
            "kv_bytes_per_token": 256 * most[1] * len(layers),
        },
        "tokens": tokens,
        "next_tokens": [{"token": t, "probability": p} for t, p in following] if causal else [],
        "layers": [
            {
                "layer": i, "name": "", "num_heads": h, "num_kv_heads": kv, "sink": sink, "tile": carried,
                "exact_rows": False, "map_rows": small, "map_columns": small,
            }
            for i, (h, kv) in enumerate(layers)
        ],
        "statistics": [
            dict(zip(("key", "label", "unit", "definition"), one, strict=True)) for one in STATISTICS
        ],
        "scores": None,
        "part": None,
        "unseen": [],
        "heads": heads,
        "seq_len": count,
        "kv_len": count,
        "key_tokens": None,
        "image_grid": None,
        "exact": False,
        "exact_rows": [],
        "keys": None if carried else {"always": kept, "at_most": kept, "from_weight": 1 / 255**2},
        "against": None,
        "reference": "eager",
        "max_logit_difference": 3.05e-5,
        "focus_layer": None,
        "caveats": CAVEATS,
    }  # fmt: skip
    return Made(header, blocks, weights)


def compared(first: Made, second: Made) -> Made:
    """The page of two runs."""
    blocks = first.blocks | {f"second/{name}": block for name, block in second.blocks.items()}
    return Made(first.header | {"against": second.header}, blocks, first.weights + second.weights)


def saved(made: Made, folder: Path) -> Path:
    """Write the page of `made` into `folder`."""
    path = folder / "page.html"
    path.write_text(build_page(made.header, made.blocks), encoding="utf-8")
    return path


def _layer(
    random: np.random.Generator, num_heads: int, count: int, *, causal: bool, sink: bool, layer: int
) -> tuple[Floats, Floats]:
    """Softmax of scores that lean, head by head, to the first token, a past offset, itself or some words."""
    place = np.arange(count)
    scores = random.standard_normal((num_heads, count, count)) * 0.6
    scores += random.standard_normal((num_heads, 1, count)) * random.gamma(1.0, 1.0, (num_heads, 1, 1))
    for head in range(num_heads):
        lean = random.dirichlet([0.9, 0.7, 0.5, 0.6]) * 5
        scores[head, :, 0] += lean[0] + 0.08 * layer
        offset = int(random.integers(1, 4))
        scores[head] -= lean[1] * np.minimum(3.0, np.abs(place[:, None] - place[None, :] - offset)) * 0.7
        scores[head] -= lean[2] * np.minimum(4.0, np.abs(place[:, None] - place[None, :])) * 0.4
    if causal:
        scores = np.where(place[None, :] <= place[:, None], scores, -np.inf)
    grown = np.exp(scores - scores.max(axis=2, keepdims=True))
    extra = random.gamma(1.0, 2.0, (num_heads, count, 1)) if sink else np.zeros((num_heads, count, 1))
    total = grown.sum(axis=2, keepdims=True) + extra
    return grown / total, (extra / total)[:, :, 0]


def _coded(weights: Floats) -> NDArray[np.uint8]:
    return np.round(255 * np.sqrt(weights)).astype(np.uint8)


def _pooled(weights: Floats, small: int) -> Floats:
    count = weights.shape[2]
    if small == count:
        return weights
    edges = np.arange(small) * count // small
    columns = np.add.reduceat(weights, edges, axis=2)
    widths = np.diff(np.append(edges, count))
    return np.add.reduceat(columns, edges, axis=1) / widths[None, :, None]


def _statistics(weights: Floats) -> dict[str, Floats]:
    count = weights.shape[2]
    place = np.arange(count)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.where(weights > 0, weights * np.log(weights), 0.0).sum(axis=2)
    previous = np.full(weights.shape[:2], np.nan)
    previous[:, 1:] = weights[:, place[1:], place[:-1]]
    distance = (weights * np.abs(place[:, None] - place[None, :])).sum(axis=2)
    return {
        "entropy": entropy, "first_token": weights[:, :, 0], "previous_token": previous,
        "self": weights[:, place, place], "mean_distance": distance,
    }  # fmt: skip
