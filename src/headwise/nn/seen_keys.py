"""The keys and values that a layer attends to, those of its cache among them, and who sees what of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

from torch import Tensor

from headwise.cache import KVCache, RollingKVCache
from headwise.masks import Mask, Window
from headwise.ops.first_key import FirstKey

Cache = KVCache | RollingKVCache


class SeenKeys(NamedTuple):
    """Keys and values, `[batch, num_kv_heads, kv_len, width]`, and what the queries see of them.

    first_key: the place of the first token of each text, as `headwise.observe` takes it.
    """

    key: Tensor
    value: Tensor
    mask: Any
    first_key: FirstKey


def seen_keys(
    key: Tensor,
    value: Tensor,
    *,
    mask: Any,
    window: int | None,
    cache: Cache | None,
    lengths: Sequence[int] | Tensor | None,
) -> SeenKeys:
    """Return the keys and values of a call; with a cache, append them and return all that it then holds.

    Raises:
        ArgumentError: they do not fit to what the cache holds, need a gradient, or `lengths` does not fit.

    """
    if cache is None:
        return SeenKeys(key, value, _both(mask, None if window is None else Window.of(window)), None)
    before = cache.lengths or (0,) * key.shape[0]
    cache.append(key, value, lengths=lengths)
    seq_len = key.shape[2]
    if isinstance(cache, RollingKVCache):
        causal = cache.mask(seq_len)
        lasting = None if cache.keep_first else cache.window
    else:
        causal = cache.mask(seq_len, window=window)
        lasting = None
    return SeenKeys(cache.key, cache.value, _both(mask, causal), _first_key(cache, before, lasting))


@contextmanager
def _taken_back_if_it_fails(cache: Cache) -> Iterator[None]:
    before = cache.lengths
    try:
        yield
    except BaseException:  # an interrupt too
        if before:
            cache.crop(before)
        else:
            cache.reset()
        raise


def unchanged_if_it_fails(cache: Cache | None) -> AbstractContextManager[None]:
    """Return what takes back the tokens of a call that fails, so that it can be mended and repeated."""
    return nullcontext() if cache is None else _taken_back_if_it_fails(cache)


def _first_key(cache: Cache, before: Sequence[int], lasting: int | None) -> FirstKey:
    """Return where each text's first token is, which the cache keeps for `lasting` tokens (None: ever)."""
    if cache.key.shape[2] == 0:
        return None
    # Where no new query sees the first token any more, it may be gone, and another one in its place.
    return [0 if lasting is None or position < lasting else -1 for position in before]


def _both(mask: Any, other: Mask | None) -> Any:
    """Return what lets through the keys that both let through; None lets all through."""
    if mask is None or other is None:
        return other if mask is None else mask
    return other & mask
