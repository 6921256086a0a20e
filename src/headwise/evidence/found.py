"""What was found about each head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from headwise.errors import ArgumentError
from headwise.evidence.statistics import OTHER_STATISTICS, STATISTICS

Array = TypeVar("Array")


@dataclass(frozen=True)
class Evidence(Generic[Array]):
    """What one attention call was seen to do, per head and row.

    The arrays are tensors of the calling framework, in the dtype of computation: float64 for float64 inputs,
    else float32. `heads` below counts the reported heads: all query heads, or those that
    `Collect(heads=...)` names, in its order. `[batch, heads, seq_len]` unless said:

    - entropy, normalised_entropy, largest_weight, first_token, previous_token, self_token, mean_distance,
      local: `headwise.evidence` has the definitions; NaN where a row has no such number.
    - largest_key: int64; -1 where a row has no largest weight.
    - visible: boolean, whether the row sees any key.
    - sink: mass that a learned sink took, NaN where a row sees no key, or None where the layer has no sink.
    - weights: `[batch, heads, seq_len, kv_len]`, or None.
    - map: `[batch, heads, rows, columns]`, rows and columns at most `map_size`, or None; rows that
      see no key are left out of a cell's mean, and a cell of nothing else is 0.
    - top_weights, top_keys: `[batch, heads, seq_len, top_k]` largest first, or None; at most kv_len of
      them, and past the keys that a row sees the weight is 0 and the key -1. Equal weights come in any order.
    - at_offsets: `[batch, heads, seq_len, offsets]`, in the order of `Collect(offsets=...)`, or None.
    - row_weights: `[batch, heads, rows, kv_len]`, the exact weights of the rows of `Collect(rows=...)`, in
      its order, 0 at hidden keys, or None.
    - received: `[batch, heads, kv_len]`, the sum over all rows of the weight on each key, or None.
    - divergence: `[batch, pairs, seq_len]`, in the order of `Collect(pairs=...)`, or None.
    - heads: the reported query heads, in order, or None for all of the layer.
    """

    entropy: Array
    normalised_entropy: Array
    largest_weight: Array
    largest_key: Array
    first_token: Array
    previous_token: Array
    self_token: Array
    mean_distance: Array
    local: Array
    visible: Array
    sink: Array | None = None
    weights: Array | None = None
    map: Array | None = None
    top_weights: Array | None = None
    top_keys: Array | None = None
    at_offsets: Array | None = None
    row_weights: Array | None = None
    received: Array | None = None
    divergence: Array | None = None
    heads: tuple[int, ...] | None = None

    def per_head(self, counted: Array | None = None) -> dict[str, NDArray[np.float64]]:
        """Return each number of the rows summed up to one a head: the mean over the rows that have one.

        Rows of all batch elements count alike. NaN where no row has the number.

        Args:
            counted: boolean `[batch, seq_len]` or `[1, seq_len]`, the rows that count, which padding should
                not; None for all rows.

        Returns:
            By name of the field, those of `STATISTICS` and `OTHER_STATISTICS` that were collected, `[heads]`;
            at_offsets `[heads, offsets]`; divergence `[pairs]`.

        Raises:
            ArgumentError: `counted` is not boolean or does not fit.

        Example:
            >>> import torch
            >>> from headwise import Causal, observe
            >>> query, key, value = torch.zeros(3, 1, 2, 5, 7).unbind()
            >>> observe(query, key, value, mask=Causal()).evidence.per_head()["normalised_entropy"].round(3)
            array([0.8, 0.8])

        """
        rows = None if counted is None else _counted_rows(counted, np.shape(_as_numpy(self.visible)))
        names = [statistic.name for statistic in (*STATISTICS, *OTHER_STATISTICS)]
        found = {name: getattr(self, name) for name in (*names, "at_offsets", "divergence")}
        return {
            name: _mean_of_rows(_as_numpy(each), rows) for name, each in found.items() if each is not None
        }


def _counted_rows(given: Any, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    batch, _, seq_len = shape
    counted = _as_numpy(given)
    if counted.dtype != np.bool_ or counted.shape not in {(batch, seq_len), (1, seq_len)}:
        raise ArgumentError(
            f"counted has dtype {counted.dtype} and shape {counted.shape}; it must be boolean and "
            f"{(batch, seq_len)} or {(1, seq_len)}, True for the rows that count"
        )
    return counted


def _mean_of_rows(numbers: NDArray[Any], counted: NDArray[np.bool_] | None) -> NDArray[np.float64]:
    """Return the means over batch and rows of `[batch, heads, seq_len, ...]`."""
    known = ~np.isnan(numbers)
    if counted is not None:
        # [batch or 1, seq_len] -> [batch or 1, 1, seq_len, ...]
        known &= counted.reshape(len(counted), 1, -1, *(1,) * (numbers.ndim - 3))
    total = np.where(known, numbers, 0.0).sum(axis=(0, 2), dtype=np.float64)
    count = known.sum(axis=(0, 2))
    means: NDArray[np.float64] = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    return means


def _as_numpy(array: Any) -> NDArray[Any]:
    # A tensor of another device has to be brought over, which only its own library can.
    return array.numpy(force=True) if hasattr(array, "numpy") else np.asarray(array)
