"""What every layer did over one text, prompt and generated tokens together.

A forward continues the one before where it uses the same cache, with nothing done to the cache in between.
Everything else starts a new picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwise.errors import UnsupportedError
from headwise.evidence import Collect, Evidence
from headwise.models.attachment.cache_watch import CacheWatch, cache_among, cached_tokens
from headwise.models.attachment.discover import AttachedLayer
from headwise.models.attachment.layer_call import LayerCall
from headwise.models.attachment.layer_text import LayerText


class Answer(NamedTuple):
    """The output of every head in one call of a layer, and the evidence of that call alone."""

    output: Tensor
    evidence: Evidence[Tensor]


class _Place(NamedTuple):
    """Where a call stands in the text.

    - row, key: the places in the text of its first row and its first key
    - kv_len: how many of its keys there are, without the empty ones of a static cache
    - alone: whether it has no part in the text that the cache holds, and so is a text of its own
    """

    row: int
    key: int
    kv_len: int
    alone: bool = False


class Picture(Mapping[AttachedLayer, Evidence[Tensor]]):
    """The evidence of the forwards over one text, by layer.

    Args:
        collect: what is recorded, by layer.
        cache: the cache that the first forward was given, or None.
        first_token: where the cache holds tokens already, the place of each text's first token,
            `[batch or 1]`; None where it is not known.

    """

    def __init__(
        self,
        collect: Mapping[AttachedLayer, Collect],
        cache: Any | None = None,
        first_token: Tensor | None = None,
    ) -> None:
        self.collect = collect
        self.first_row = cached_tokens(cache)
        self._first_token = first_token
        self._first_keys: dict[AttachedLayer, Tensor | None] = {}
        self._texts: dict[AttachedLayer, LayerText] = {}
        self._other_keys: dict[AttachedLayer, int] = {}
        self._refusals: dict[AttachedLayer, str] = {}
        self._refusal: str | None = None
        self._watch: CacheWatch | None = None
        self.begin(cache)

    def __getitem__(self, layer: AttachedLayer) -> Evidence[Tensor]:
        refusal = self._refusal or self._refusals.get(layer)
        if refusal is not None:
            raise UnsupportedError(
                f"the forwards over this text give layer {layer.layer} ({layer.name}) no whole picture: "
                f"{refusal}; run the finished text through one forward"
            )
        return self._texts[layer].evidence()

    def __contains__(self, layer: object) -> bool:
        return layer in self._texts

    def __iter__(self) -> Iterator[AttachedLayer]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def goes_on_with(self, cache: Any | None) -> bool:
        """Return whether a forward that is given this cache goes on with the text."""
        return self._watch is not None and self._watch.is_of(cache) and cached_tokens(cache) > 0

    def begin(self, cache: Any | None) -> None:
        """Begin a forward over the next part of the text."""
        if self._watch is not None and self._refusal is None:
            self._refusal = self._watch.change()
        self._cache, self._past = cache, cached_tokens(cache)

    def end(self, outputs: Any) -> None:
        """End a forward; `outputs` is None where it failed."""
        # Many models make the cache themselves, in the first forward.
        values = list(outputs.values()) if isinstance(outputs, Mapping) else outputs
        made = cache_among(values) if isinstance(values, list | tuple) else None
        self._watch = None if outputs is None else CacheWatch.of(self._cache if made is None else made)
        self._cache = None

    def observe(
        self, layer: AttachedLayer, call: LayerCall, head_gates: Tensor | None, *, in_forward: bool
    ) -> Answer:
        """Return what a layer gives, and add its evidence to the text.

        in_forward: whether this is part of a forward of the whole model; what is not stands alone.
        """
        place = self._place(layer, call) if in_forward else _Place(0, 0, call.written_keys(), alone=True)
        text, stop = self._text(layer, place), place.row + call.query.shape[2]
        wanted, rows = self.collect[layer], text.rows.needed(place.row, stop)
        if wanted.rows:
            wanted = replace(wanted, rows=[row - place.row for row in rows])
        known, first_key = self._first_key(layer, call, place)
        output, evidence = call.observe(head_gates, wanted, kv_len=place.kv_len, first_key=first_key)
        if not known:
            evidence = replace(evidence, first_token=torch.full_like(evidence.first_token, torch.nan))
        if self._refusal is None and layer not in self._refusals:
            text.add(evidence, rows=rows, first_key=place.key, kv_len=place.kv_len)
        if wanted.rows:
            evidence = replace(evidence, row_weights=text.rows.of_call(evidence, rows, stop))
        return Answer(output, evidence)

    def _place(self, layer: AttachedLayer, call: LayerCall) -> _Place:
        seq_len, kv_len, written = call.query.shape[2], call.key.shape[2], call.written_keys()
        if layer.kind == "cross":
            if self._other_keys.setdefault(layer, kv_len) != kv_len:
                self._refusals[layer] = (
                    f"its keys, {self._other_keys[layer]} and then {kv_len}, are not one sequence"
                )
            return _Place(self._past, 0, written)
        stop = self._past + seq_len
        # A layer that sees only its own rows beside a cache, as in a vision half, does not read the cache.
        reads_no_cache = kv_len < seq_len or (self._past > 0 and kv_len == seq_len)
        if reads_no_cache or written > stop:
            return _Place(0, 0, written, alone=True)
        kept = min(kv_len, stop)  # a cache with a window has dropped the first ones
        return _Place(self._past, stop - kept, kept)

    def _text(self, layer: AttachedLayer, place: _Place) -> LayerText:
        """Return what to add the evidence of a call to."""
        known = self._texts.get(layer)
        if known is None or place.alone:
            known = LayerText(self.collect[layer], first_row=place.row, own_keys=layer.kind == "self")
            self._texts[layer] = known
            begins = 0 if place.alone else self.first_row
        else:
            begins = known.stop
        if begins != place.row:
            self._refusals[layer] = (
                f"it did not run in every forward, and stands at row {begins} where the text has {place.row}"
            )
        return known

    def _first_key(self, layer: AttachedLayer, call: LayerCall, place: _Place) -> tuple[bool, Tensor | None]:
        """Return whether it is known which of the call's keys is the text's first token, and which.

        None stands for the first key that any row of the call sees.
        """
        if place.alone:
            return True, None
        if place.row == 0 or (layer.kind == "cross" and layer not in self._first_keys):
            self._first_keys[layer] = call.first_seen_key()
            return True, None
        first = self._first_keys.get(layer, self._first_token)
        if first is None:
            return False, None
        return True, (first - place.key).expand(call.query.shape[0])
