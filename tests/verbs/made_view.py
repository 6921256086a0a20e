"""Views made by hand: evidence of the right shapes without a model, for lengths that take a model minutes.

The weights of a row fall from one key to the next, as in a real model; but the keys lie anywhere and nothing
repeats from row to row, so that a page of it is larger than a real one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwise.evidence import STATISTICS
from headwise.models.tokens import Token
from headwise.verbs.view import HeadSummary, LayerMaps, ModelFacts, View

from .page_data import SENTENCE

Float32 = NDArray[np.float32]


def made_view(
    count: int,
    *,
    layers: int = 2,
    num_heads: int = 3,
    num_kv_heads: int = 1,
    top_k: int = 8,
    map_size: int = 64,
    focus_layer: int | None = None,
    focus_map_size: int | None = None,
    weights: bool | None = None,
    exact_rows: tuple[int, ...] = (),
    name: str = "made-up",
    seed: int = 5,
) -> View:
    """A causal model's view of `count` tokens; `weights` says whether the layer in focus has its weights."""
    random = np.random.default_rng(seed)
    found: list[LayerMaps] = []
    for layer in range(layers):
        focused = layer == focus_layer
        whole = focused if weights is None else weights
        size = min(count, (focus_map_size or map_size) if focused else map_size)
        top_keys, top_weights = _top(random, num_heads, count, min(top_k, count))
        exact = _exact_rows(random, num_heads, exact_rows, count) if exact_rows else None
        found.append(
            LayerMaps(
                layer, num_heads, num_kv_heads,
                thumbnails=_causal(random, num_heads, size),
                top_weights=top_weights,
                top_keys=top_keys,
                rows={one.name: random.random((num_heads, count), np.float32) for one in STATISTICS},
                weights=_causal(random, num_heads, count) if whole else None,
                sink=None,
                exact_weights=exact,
            )
        )  # fmt: skip
    heads = tuple(
        HeadSummary(layer, head, head * num_kv_heads // num_heads, *random.random(len(STATISTICS)).tolist())
        for layer in range(layers)
        for head in range(num_heads)
    )
    tokens = tuple(Token(i, SENTENCE[i % len(SENTENCE)], "text") for i in range(count))
    cache_bytes = 256 * num_kv_heads * layers
    return View(
        ModelFacts(name, "llama", layers, num_heads, num_kv_heads, 64, cache_bytes, causal=True),
        "".join(token.text for token in tokens), tokens, (), heads, tuple(found), 1e-5,
        focus_layer=focus_layer, exact_rows=exact_rows,
    )  # fmt: skip


def _top(
    random: np.random.Generator, num_heads: int, count: int, kept: int
) -> tuple[NDArray[np.int64], Float32]:
    """The largest keys of each row, largest first; past the keys that a row sees the key is -1."""
    row = np.arange(count)[:, None]
    keys = np.empty((num_heads, count, kept), np.int64)
    for head in range(num_heads):
        # Distinct keys of one row: a start and a step that grows from place to place.
        steps = np.cumsum(random.integers(1, max(2, count // (2 * kept)), (count, kept)), axis=1) - 1
        keys[head] = np.where(random.random((count, 1)) < 0.5, row - steps, steps)
    seen = np.minimum(row + 1, kept)
    fallback = np.broadcast_to(np.arange(kept), (count, kept))
    keys = np.where((keys < 0) | (keys > row), fallback, keys)
    # Where that made two places equal, the row takes its first keys instead.
    ordered = np.sort(keys, axis=2)
    equal = (np.diff(ordered, axis=2) == 0).any(axis=2)
    keys[equal] = np.broadcast_to(fallback, keys.shape)[equal]
    weights = -np.sort(-random.dirichlet([0.6] * (kept + 2), (num_heads, count))[..., :kept], axis=2)
    absent = fallback >= seen
    return np.where(absent, -1, keys), np.where(absent, 0, weights).astype(np.float32)


def _causal(random: np.random.Generator, num_heads: int, size: int) -> Float32:
    grown = np.tril(random.gamma(0.3, 1.0, (num_heads, size, size)).astype(np.float32) + np.float32(1e-6))
    return np.asarray(grown / grown.sum(axis=2, keepdims=True))


def _exact_rows(random: np.random.Generator, num_heads: int, rows: tuple[int, ...], count: int) -> Float32:
    grown = random.gamma(0.3, 1.0, (num_heads, len(rows), count)) * (
        np.arange(count) <= np.array(rows)[:, None]
    )
    return (grown / grown.sum(axis=2, keepdims=True)).astype(np.float32)


def open_view(
    queries: int, keys: int | None = None, *, grid: tuple[int, int] | None = None, seed: int = 6
) -> View:
    """A view in which every token sees all: of an encoder, or, where `keys` is given, of another text."""
    random = np.random.default_rng(seed)
    count = queries if keys is None else keys
    found = []
    for layer in range(2):
        weights = random.dirichlet([0.3] * count, (4, queries)).astype(np.float32)
        order = np.argsort(-weights, axis=2)[..., :8]
        rows = {one.name: random.random((4, queries), np.float32) for one in STATISTICS}
        top = np.take_along_axis(weights, order, axis=2)
        found.append(LayerMaps(layer, 4, 2, weights, top, order, rows, weights, None))
    heads = tuple(
        HeadSummary(layer, head, head // 2, 1.0, 0.5, None, 0.1, None)
        for layer in (0, 1)
        for head in range(4)
    )
    tokens = _tokens(SENTENCE, queries)
    if grid is not None:
        patches = tuple(Token(i, "", "special") for i in range(grid[0] * grid[1]))
        before = tuple(Token(0, "[CLS]", "special") for _ in range(count - len(patches)))
    others = (
        _tokens([" Die", " Bank", " hob", " die", " Zinsen"], count) if grid is None else before + patches
    )
    return View(
        ModelFacts("open", "bart", 2, 4, 2, 16, 0, causal=False),
        "made up", tokens if keys is not None or grid is None else others, (), heads, tuple(found), 0.0,
        key_tokens=None if keys is None else others, image_grid=grid,
    )  # fmt: skip


def _tokens(words: list[str], count: int) -> tuple[Token, ...]:
    return tuple(Token(i, words[i % len(words)], "text") for i in range(count))
