"""Caches of the keys and values of one layer, so that each new token is computed once.

    cache = KVCache()
    cache.append(key, value)
    output = attention(query, cache.key, cache.value, mask=cache.mask(query.shape[2]))

`KVCache` keeps every token; `RollingKVCache` keeps the first few and a window of the last ones. The rows of a
batch may be unequally long. A cache only stores; its mask says where the new queries stand among the keys.

The rooms: `layer_cache` (what both do), `kv_cache` and `rolling` (what sets them apart), `arguments` (what an
append and a reordering may be given).
"""

from headwise.cache.kv_cache import KVCache
from headwise.cache.rolling import RollingKVCache

__all__ = ["KVCache", "RollingKVCache"]
