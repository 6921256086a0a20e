"""The map of a text whose weights were kept."""

from __future__ import annotations

from torch import Tensor

from headwise.ops.map_cells import cells_of


def pooled_map(weights: Tensor, visible: Tensor, size: int) -> Tensor:
    """Return the map of at most `size x size` cells that one forward over the whole text would give.

    Args:
        weights: `[batch, heads, seq_len, kv_len]`.
        visible: whether a row sees any key, `[batch, heads, seq_len]`.
        size: as `Collect(map_size=...)`.

    Returns:
        `[batch, heads, rows, columns]`, the mean over a cell's rows of the mass on its keys.

    """
    row_cells, key_cells = (cells_of(length, size, weights.device) for length in weights.shape[2:])
    by_key = weights.new_zeros((*weights.shape[:3], min(size, weights.shape[3])))
    by_key.index_add_(3, key_cells, weights)
    shape = (*weights.shape[:2], min(size, weights.shape[2]))
    mass = weights.new_zeros((*shape, by_key.shape[3])).index_add_(2, row_cells, by_key)
    rows = weights.new_zeros(shape).index_add_(2, row_cells, visible.to(weights.dtype))
    return mass / rows.clamp_min(1.0)[..., None]
