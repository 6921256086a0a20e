from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.cache import KVCache, RollingKVCache
from headwise.errors import ArgumentError


def tokens(
    batch: int = 2, heads: int = 3, count: int = 5, width: int = 7, dtype: torch.dtype = torch.float32
) -> Tensor:
    return torch.zeros(batch, heads, count, width, dtype=dtype)


def filled() -> KVCache:
    """Two rows of 5 and 4 tokens, 3 KV heads, keys of 7 and values of 11."""
    cache = KVCache()
    cache.append(tokens(), tokens(width=11), lengths=[5, 4])
    return cache


def rolled() -> RollingKVCache:
    cache = RollingKVCache(window=4)
    for _ in range(2):
        cache.append(tokens(), tokens())
    return cache


@pytest.mark.parametrize(
    ("give", "message"),
    [
        (lambda: KVCache().append([1.0], tokens()), r"key is a list; .* torch.as_tensor\(key\)"),
        (
            lambda: KVCache().append(tokens(), tokens()[0]),
            r"value has rank 3, shape \(3, 5, 7\); it must have rank 4, .* new tokens, value_head_dim\]; add",
        ),
        (
            lambda: KVCache().append(tokens(count=4), tokens()),
            r"key has shape \(2, 3, 4, 7\) and value \(2, 3, 5, 7\); .* only the width may differ",
        ),
        (
            lambda: KVCache().append(tokens(), tokens(dtype=torch.float16)),
            r"key has dtype torch.float32 and value torch.float16; convert one: value.to\(key.dtype\)",
        ),
        (
            lambda: KVCache().append(tokens(), tokens().to("meta")),
            r"key has device cpu and value meta; convert one: value.to\(key.device\)",
        ),
        (
            lambda: KVCache().append(tokens().requires_grad_(), tokens()),
            r"key requires a gradient, and a cache passes none on: .*no_grad\(\), or append key.detach\(\)",
        ),
        (
            lambda: KVCache().append(tokens(), tokens().requires_grad_()),
            r"value requires a gradient, .* append value.detach\(\)",
        ),
        (
            lambda: filled().append(tokens(batch=3), tokens(batch=3)),
            r"key has shape \(3, 3, 5, 7\), but the cache holds batch 2, num_kv_heads 3 and a key width of "
            r"7; only the number of tokens may change: reorder\(\) gives the cache another batch, reset\(\)",
        ),
        (
            lambda: filled().append(tokens(heads=1), tokens(heads=1)),
            r"key has shape \(2, 1, 5, 7\), but the cache holds batch 2, num_kv_heads 3 and a key width of 7",
        ),
        (
            lambda: filled().append(tokens(width=11), tokens(width=11)),
            r"key has shape \(2, 3, 5, 11\), but the cache holds .* a key width of 7",
        ),
        (
            lambda: filled().append(tokens(), tokens()),
            r"value has shape \(2, 3, 5, 7\), but the cache holds .* a value width of 11",
        ),
        (
            lambda: filled().append(tokens(dtype=torch.bfloat16), tokens(width=11, dtype=torch.bfloat16)),
            r"key has dtype torch.bfloat16, but the cache holds torch.float32; append key.to\(torch.float",
        ),
        (
            lambda: filled().append(tokens().to("meta"), tokens(width=11).to("meta")),
            r"key has device meta, but the cache holds cpu; append key.to\(cpu\), or start again with reset",
        ),
        (
            lambda: KVCache().append(tokens(), tokens(), lengths=[5]),
            r"lengths has 1 entries, but batch is 2; give one for each batch element",
        ),
        (
            lambda: KVCache().append(tokens(), tokens(), lengths=[5, 6]),
            r"lengths has an entry of 6, but key has only 5 new tokens; .* padding stands behind them",
        ),
        (
            lambda: KVCache().append(tokens(), tokens(), lengths=[5, -1]),
            r"an entry of lengths=-1 must be at least 0",
        ),
        (lambda: KVCache().key, r"the cache is empty; append\(key, value\) comes first"),
        (lambda: KVCache().value, r"the cache is empty"),
        (lambda: KVCache().mask(1), r"the cache is empty"),
        (lambda: KVCache().crop(0), r"the cache is empty"),
        (lambda: KVCache().reorder([]), r"the cache is empty"),
        (
            lambda: filled().mask(6),
            r"mask of seq_len=6 queries, but 5 tokens are new; queries are the last tokens appended: append",
        ),
        (lambda: filled().mask(-1), r"seq_len=-1 must be at least 0"),
        (lambda: filled().mask(1, window=0), r"window=0 must be at least 1"),
        (lambda: filled().reorder([0, 2]), r"an entry of indices=2 does not exist; there is 0 to 1"),
        (lambda: filled().reorder(1), r"indices is 1; it must be a list of rows, such as \[1\]"),
        (
            lambda: filled().crop(5),
            r"crop to length 5, but row 1 can keep 0 to 4 tokens; give one length for",
        ),
        (
            lambda: filled().crop([5]),
            r"length has 1 entries, but batch is 2; give one for each .*, or one number",
        ),
        (lambda: filled().crop(-1), r"length=-1 must be at least 0"),
        (
            lambda: rolled().crop(4),
            r"row 0 can keep 5 to 10 tokens; .* rolling cache .* its last append only",
        ),
        (lambda: rolled().mask(6), r"mask of seq_len=6 queries, but 5 tokens are new"),
        (lambda: RollingKVCache(window=0), r"window=0 must be at least 1"),
        (lambda: RollingKVCache(window=5, keep_first=-1), r"keep_first=-1 must be at least 0"),
    ],
)
def test_what_cannot_be_is_refused(give: Callable[[], Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        give()


@pytest.mark.parametrize("make", [filled, rolled])
def test_a_refused_append_changes_nothing(make: Callable[[], KVCache | RollingKVCache]) -> None:
    cache = make()
    before = cache.lengths, cache.capacity, cache.key.clone(), cache.value.clone(), cache.mask(1)
    for key, value, lengths in (
        (tokens(batch=3), tokens(batch=3), None),
        (tokens(), tokens(width=13), None),
        (tokens(), torch.zeros_like(cache.value[:, :, :1]).expand(-1, -1, 5, -1), [5, 6]),
    ):
        with pytest.raises(ArgumentError):
            cache.append(key, value, lengths=lengths)
    assert (cache.lengths, cache.capacity) == before[:2]
    assert cache.mask(1) == before[4]
    torch.testing.assert_close(cache.key, before[2], rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(cache.value, before[3], rtol=0, atol=0, equal_nan=True)


def test_after_a_crop_below_the_last_append_there_are_no_queries() -> None:
    cache = filled()
    cache.append(tokens(count=2), tokens(count=2, width=11))
    cache.crop(3)
    with pytest.raises(ArgumentError, match=r"mask of seq_len=1 queries, but 0 tokens are new"):
        cache.mask(1)
