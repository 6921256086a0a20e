"""What one layer did over a text that it read in one forward or in many."""

from __future__ import annotations

from dataclasses import fields, replace

import torch
from torch import Tensor

from headwise.errors import UnsupportedError
from headwise.evidence import Collect, Evidence
from headwise.models.attachment.growing import Growing
from headwise.models.attachment.kept_rows import KeptRows
from headwise.models.attachment.whole_maps import pooled_map

NOT_BY_ROW = ("weights", "map", "row_weights", "received", "heads")
BY_ROW = tuple(field.name for field in fields(Evidence) if field.name not in NOT_BY_ROW)
"""What a row has on its own: `[batch, heads or pairs, seq_len, ...]`."""
BY_OWN_PLACE = ("previous_token", "self_token", "mean_distance", "local", "at_offsets")
"""What counts from the key at which the row itself stands."""


class LayerText:
    """Puts the evidence of the forwards over one text together, row after row; a single one stays as it is.

    Args:
        collect: what is recorded.
        first_row: the place in the text of the first row to come.
        own_keys: whether the keys are the text's own tokens, and not those of another sequence.

    """

    def __init__(self, collect: Collect, *, first_row: int, own_keys: bool) -> None:
        self.rows = KeptRows(collect)
        self.stop = first_row
        self._collect = collect
        self._own_keys = own_keys
        self._heads: tuple[int, ...] | None = None
        self._kv_len = 0
        self._forwards = 0
        self._map_is_whole = True
        self._first: Evidence[Tensor] | None = None
        self._by_row: dict[str, Growing] = {}
        self._weights: list[Tensor] = []
        self._received: Growing | None = None
        self._joined: Evidence[Tensor] | None = None

    def add(self, evidence: Evidence[Tensor], *, rows: tuple[int, ...], first_key: int, kv_len: int) -> None:
        """Take in the next rows.

        Args:
            evidence: of one call; its keys are numbered as in that call.
            rows: the rows of the text whose weights it holds.
            first_key: the place in the text of the call's first key.
            kv_len: how many keys the call had.

        """
        part = in_text(evidence, first_key)
        self.stop += part.entropy.shape[2]
        self._kv_len = max(self._kv_len, first_key + kv_len)
        if part.row_weights is not None:
            self.rows.add(rows, part.row_weights, self.stop)
        self._map_is_whole = self._forwards == 0 and first_key == 0
        self._forwards += 1
        self._joined, self._heads = None, part.heads
        if self._forwards == 1:
            self._first = replace(part, row_weights=None)
        else:
            self._append(part)

    def evidence(self) -> Evidence[Tensor]:
        """Return what was found in all rows.

        Raises:
            ArgumentError: a row is asked for that the text does not have.
            UnsupportedError: a row or a map is asked for that cannot be told from what was recorded.

        """
        if self._joined is None:
            found = self._join() if self._first is None else self._first
            if self._collect.rows:
                found = replace(found, row_weights=self.rows.of_text(self.stop, self._kv_len))
            self._joined = found if self._map_is_whole else replace(found, map=self._map(found))
        return self._joined

    def _append(self, part: Evidence[Tensor]) -> None:
        if self._first is not None:
            first, self._first = self._first, None
            self._by_row = {name: Growing(each) for name, each in self._rows_of(first).items()}
            self._weights = [] if first.weights is None else [first.weights]
            self._received = None if first.received is None else Growing(first.received)
        for name, each in self._rows_of(part).items():
            self._by_row[name].append(each)
        if part.weights is not None:
            self._weights.append(part.weights)
        if self._received is not None and part.received is not None:
            self._received.add(part.received)

    def _rows_of(self, part: Evidence[Tensor]) -> dict[str, Tensor]:
        found = {name: getattr(part, name) for name in BY_ROW if getattr(part, name) is not None}
        if self._collect.top_k is not None:
            # A forward with fewer keys has fewer columns.
            missing = (0, self._collect.top_k - found["top_keys"].shape[-1])
            for name, nothing in (("top_weights", 0), ("top_keys", -1)):
                found[name] = torch.nn.functional.pad(found[name], missing, value=nothing)
        if not self._own_keys:
            # Which key of another sequence a row stands at depends on how long this text will be.
            for name in BY_OWN_PLACE:
                if name in found:
                    found[name] = torch.full_like(found[name], torch.nan)
        return found

    def _join(self) -> Evidence[Tensor]:
        found = {name: grown.whole() for name, grown in self._by_row.items()}
        received = None if self._received is None else self._received.whole().clone()
        if self._weights:
            self._weights = [_under_one_another(self._weights)]
        if self._collect.top_k is not None:
            count = min(self._collect.top_k, self._kv_len)
            found |= {name: found[name][..., :count] for name in ("top_weights", "top_keys")}
        weights = self._weights[0] if self._weights else None
        return Evidence(**found, weights=weights, received=received, heads=self._heads)

    def _map(self, found: Evidence[Tensor]) -> Tensor | None:
        size = self._collect.map_size
        if size is None:
            return None
        if found.weights is None:
            raise UnsupportedError(
                f"map_size={size} asks for a map of a text that was read in {self._forwards} forwards with a "
                "cache: its cells follow the length of the whole text, and the weights that would have to be "
                "pooled again are gone; collect weights=True as well, leave map_size out, or run the whole "
                "text through one forward"
            )
        return pooled_map(found.weights, found.visible, size)


def in_text(evidence: Evidence[Tensor], first_key: int) -> Evidence[Tensor]:
    """Return the evidence of a call, whose first key stands at `first_key`, keys numbered by the text."""
    if first_key == 0:
        return evidence
    return replace(
        evidence,
        largest_key=_moved(evidence.largest_key, first_key),
        top_keys=None if evidence.top_keys is None else _moved(evidence.top_keys, first_key),
        weights=_behind_nothing(evidence.weights, first_key),
        row_weights=_behind_nothing(evidence.row_weights, first_key),
        received=_behind_nothing(evidence.received, first_key),
    )


def _moved(keys: Tensor, by: int) -> Tensor:
    return torch.where(keys < 0, keys, keys + by)


def _behind_nothing(weights: Tensor | None, count: int) -> Tensor | None:
    """Return the weights with 0 for keys that a cache has dropped."""
    return None if weights is None else torch.nn.functional.pad(weights, (count, 0))


def _under_one_another(parts: list[Tensor]) -> Tensor:
    """Return the rows of all parts, `[batch, heads, rows, kv_len]`; keys that came later weigh 0."""
    kv_len = max(part.shape[3] for part in parts)
    shape = (*parts[0].shape[:2], sum(part.shape[2] for part in parts), kv_len)
    joined, start = parts[0].new_zeros(shape), 0
    for part in parts:
        joined[:, :, start : start + part.shape[2], : part.shape[3]] = part
        start += part.shape[2]
    return joined
