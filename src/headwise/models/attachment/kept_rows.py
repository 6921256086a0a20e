"""The exact rows of a text that are asked for, picked out of forwards that each see some of its rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headwise.errors import UnsupportedError
from headwise.evidence import Collect, Evidence


class KeptRows:
    """The weights of the rows of `Collect(rows=...)`, which are rows of the whole text.

    Negative rows count from the end of the text, which moves with every step; so as many of the last rows are
    kept as could still be asked for.
    """

    def __init__(self, collect: Collect) -> None:
        self._collect = collect
        self._chosen = {row for row in collect.rows if row >= 0}
        self._last = max((-row for row in collect.rows if row < 0), default=0)
        self._weights: dict[int, Tensor] = {}

    def needed(self, start: int, stop: int) -> tuple[int, ...]:
        """Return which of the rows `start` to `stop` of a text have to be recorded, in order."""
        if not self._collect.rows:
            return ()
        last = range(max(start, stop - self._last), stop)
        return tuple(sorted({*last, *(row for row in self._chosen if start <= row < stop)}))

    def add(self, rows: Sequence[int], weights: Tensor, stop: int) -> None:
        """Keep the weights `[batch, heads, rows, kv_len]` of some rows of a text that now ends at `stop`."""
        self._weights.update(zip(rows, weights.unbind(2), strict=True))
        gone = [row for row in self._weights if row < stop - self._last and row not in self._chosen]
        for row in gone:
            del self._weights[row]

    def of_text(self, length: int, kv_len: int) -> Tensor:
        """Return the rows asked for of a text of this length, `[batch, heads, rows, kv_len]`.

        Raises:
            ArgumentError: the text has no such row.
            UnsupportedError: a row was computed before anything was recorded.

        """
        wanted = self._collect.rows_of(length)
        missing = [row for row in wanted if row not in self._weights]
        if missing:
            raise UnsupportedError(
                f"row {missing[0]} of {length} was not recorded: it came before the first forward of this "
                "text that was watched; run the text from its start with an empty cache"
            )
        rows = [_padded(self._weights[row], kv_len) for row in wanted]
        return torch.stack(rows, dim=2)

    def of_call(self, evidence: Evidence[Tensor], rows: Sequence[int], stop: int) -> Tensor | None:
        """Return those of the rows asked for that a call recorded, in the order in which they are asked for.

        evidence: of the call, whose recorded rows of the text are `rows`; the text then ends at `stop`.
        """
        if evidence.row_weights is None:
            return None
        asked = [row if row >= 0 else stop + row for row in self._collect.rows]
        return evidence.row_weights[:, :, [rows.index(row) for row in asked if row in rows]]


def _padded(weights: Tensor, kv_len: int) -> Tensor:
    return torch.nn.functional.pad(weights, (0, kv_len - weights.shape[-1]))
