"""How much of a view the page carries: the parts in the order of their worth, each within its budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.evidence import STATISTICS
from headwise.verbs.view.page_blocks import Packer, as_ink
from headwise.verbs.view.page_budget import PageBudget
from headwise.verbs.view.page_keys import KeyChoice, key_blocks
from headwise.verbs.view.result import Float32, LayerMaps, View

Blocks = dict[str, NDArray[Any]]
SMALLEST_MAP = 8
"""Cells a side of a small map; fewer would show nothing."""
MOST_PACKED = 8
"""Blocks that would have to shrink more than this are not packed to see it."""


@dataclass(frozen=True)
class Detail:
    """The blocks of a run, and what its header says of them.

    - tiles: the layers whose every weight is carried; exact: whether as computed, and not in 8 bits
    - exact_rows: the layers whose rows asked for are carried as computed
    - map_sizes: rows and columns of the small maps of each layer
    - keys: which of the largest keys are carried where not every weight is; None if none is needed
    """

    blocks: Blocks
    tiles: frozenset[int]
    exact: bool
    exact_rows: frozenset[int]
    map_sizes: dict[int, tuple[int, int]]
    keys: KeyChoice | None


def detail_of(view: View, *, budget: PageBudget, packer: Packer) -> Detail:
    """Return as much of `view` as `budget` allows."""
    blocks = _maps(view, budget.maps, packer)
    sizes = {maps.layer: blocks[f"thumbnails/{maps.layer}"].shape[1:] for maps in view.layers}
    blocks |= {f"sink/{maps.layer}": as_ink(maps.sink) for maps in view.layers if maps.sink is not None}
    tiles, exact = _tiles(view, budget, packer)
    blocks |= tiles | _statistics(view, budget.statistics, packer)
    rows = {} if exact else _exact_rows(view, budget.exact, packer)
    blocks |= rows
    carried = frozenset(maps.layer for maps in view.layers if f"weights/{maps.layer}" in tiles)
    others = [maps for maps in view.layers if maps.layer not in carried]
    keys = None
    if others:
        left = budget.page - packer.size(*blocks.values())
        keys, key_parts = key_blocks(others, budget=left, packer=packer)
        blocks |= key_parts
    exact_layers = frozenset(maps.layer for maps in view.layers if f"exact/{maps.layer}" in rows)
    return Detail(blocks, carried, exact, exact_layers, sizes, keys)


def _maps(view: View, budget: int, packer: Packer) -> Blocks:
    """Return the small maps, pooled two by two for as long as they are too large together."""
    maps = {one.layer: one.thumbnails for one in view.layers}
    while True:
        blocks: Blocks = {f"thumbnails/{layer}": as_ink(one) for layer, one in maps.items()}
        largest = max(min(one.shape[1:]) for one in maps.values())
        if packer.size(*blocks.values()) <= budget or largest < 2 * SMALLEST_MAP:
            return blocks
        maps = {layer: _pooled(one) if min(one.shape[1:]) == largest else one for layer, one in maps.items()}


def _pooled(maps: Float32) -> Float32:
    """Halve the cells a side: mass is added along a row and rows are averaged, so rows keep their sums."""
    # Where the number is odd, the last cell takes in three.
    rows, columns = (np.arange(0, size // 2 * 2, 2) for size in maps.shape[1:])
    narrow = np.add.reduceat(maps, columns, axis=2)
    counts = np.diff(np.append(rows, maps.shape[1]))
    return (np.add.reduceat(narrow, rows, axis=1) / counts[:, None]).astype(np.float32)


def _tiles(view: View, budget: PageBudget, packer: Packer) -> tuple[Blocks, bool]:
    """Return every weight (as computed, in 8 bits, or of the layer in focus), and whether as computed."""
    whole: Blocks = {
        f"weights/{maps.layer}": maps.weights for maps in view.layers if maps.weights is not None
    }
    if len(whole) == len(view.layers) and _fits(whole, budget.exact, packer):
        return whole, True
    in_focus = f"weights/{view.focus_layer}"
    for names in (list(whole), [name for name in whole if name == in_focus]):
        coded: Blocks = {name: as_ink(whole[name]) for name in names}
        if _fits(coded, budget.tiles, packer):
            return coded, False
    return {}, False


def _exact_rows(view: View, budget: int, packer: Packer) -> Blocks:
    """Return the rows that were asked for, as they were computed: of all layers, or of the one in focus."""
    return _all_or_in_focus(
        view,
        lambda maps: {} if maps.exact_weights is None else {f"exact/{maps.layer}": maps.exact_weights},
        budget,
        packer,
    )


def _statistics(view: View, budget: int, packer: Packer) -> Blocks:
    return _all_or_in_focus(
        view,
        lambda maps: {f"rows/{maps.layer}/{one.key}": maps.rows[one.name] for one in STATISTICS},
        budget,
        packer,
    )


def _all_or_in_focus(
    view: View, blocks_of: Callable[[LayerMaps], Blocks], budget: int, packer: Packer
) -> Blocks:
    for layers in (view.layers, [maps for maps in view.layers if maps.layer == view.focus_layer]):
        blocks = {name: block for maps in layers for name, block in blocks_of(maps).items()}
        if _fits(blocks, budget, packer):
            return blocks
    return {}


def _fits(blocks: Blocks, budget: int, packer: Packer) -> bool:
    if sum(block.nbytes for block in blocks.values()) > MOST_PACKED * budget:
        return False
    return packer.size(*blocks.values()) <= budget
