"""Knowing whether a forward goes on with the one before: by the cache of both, to which nothing was done."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from torch import Tensor


def cache_among(values: Iterable[Any]) -> Any | None:
    """Return the cache among the arguments or the outputs of a forward, or None."""
    # By what it can do, not by its name: transformers is renaming the argument that carries it.
    return next((value for value in values if hasattr(value, "get_seq_length")), None)


def cached_tokens(cache: Any | None) -> int:
    """Return how many tokens of the text went through a cache, those included that it dropped again."""
    return 0 if cache is None else int(cache.get_seq_length())


class CacheWatch:
    """A cache as a forward left it; it is kept alive by its user alone."""

    def __init__(self, cache: Any) -> None:
        self._cache = weakref.ref(cache)
        self._tokens = cached_tokens(cache)
        self._left = [
            (layer, name, _remembered(value)) for layer, name, value in _entries(cache) if _tells(value)
        ]

    @classmethod
    def of(cls, cache: Any | None) -> CacheWatch | None:
        """Return the watch of a cache, or None where there is none whose layers can be looked at."""
        return None if cache is None or not _layers(cache) else cls(cache)

    def is_of(self, cache: Any | None) -> bool:
        """Return whether this is the very cache that was left."""
        return cache is not None and self._cache() is cache

    def change(self) -> str | None:
        """Return what was done to the cache since it was left, or None where nothing was."""
        cache = self._cache()
        now = cached_tokens(cache)
        if now < self._tokens:
            return (
                f"{self._tokens - now} of its {self._tokens} cached tokens were taken back between two "
                "forwards, as assisted decoding does"
            )
        found = {(layer, name): value for layer, name, value in _entries(cache) if _tells(value)}
        same = len(found) == len(self._left) and all(
            _is_still(remembered, found.get((layer, name), self)) for layer, name, remembered in self._left
        )
        if same:
            return None
        return "its cache was changed between two forwards, as beam search does to reorder the batch"


def _layers(cache: Any) -> list[Any]:
    """Return what a cache keeps for each layer; of an encoder-decoder's, for the layers that grow."""
    return list(getattr(getattr(cache, "self_attention_cache", cache), "layers", ()))


def _entries(cache: Any) -> Iterable[tuple[int, str, Any]]:
    for place, layer in enumerate(_layers(cache)):
        for name, value in vars(layer).items():
            yield place, name, value


def _tells(value: Any) -> bool:
    # Whoever reorders, repeats or crops a cache puts other tensors in the place of the old ones, or notes
    # down that he will; updates do so too, but within a forward.
    return value is None or isinstance(value, Tensor | int)


def _remembered(value: Any) -> Any:
    return weakref.ref(value) if isinstance(value, Tensor) else value


def _is_still(remembered: Any, value: Any) -> bool:
    if isinstance(remembered, weakref.ref):
        return remembered() is value
    return type(remembered) is type(value) and remembered == value
