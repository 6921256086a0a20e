"""A text that goes through a cache piece by piece, held against the same text in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from headwise import ops
from headwise.cache import KVCache, RollingKVCache
from headwise.ops import AttentionResult

from ..attention_cases import Case, assert_attends, tensors
from ..naive import naive_attention
from ..tolerance import assert_within_rule

Pieces = Sequence[Sequence[int]]
"""The tokens that each append brings to each row of the batch."""


def text(kind: str = "randn", *, length: int, batch: int = 1, seed: int = 0, **sizes: Any) -> Case:
    """Return a text of that length in causal order: 2 KV heads for 6 query heads, narrow values."""
    sizes = {"num_heads": 6, "num_kv_heads": 2, "head_dim": 7, "value_head_dim": 5, **sizes}
    made = tensors(kind, batch=batch, seq_len=length, kv_len=length, seed=seed, **sizes)
    return Case(kind, *made, {"mask": causal([length] * batch, length)})


def causal(lengths: Sequence[int], length: int, *, window: int | None = None, keep_first: int = 0) -> Tensor:
    """Return what rows of those lengths see, padded to `length`; True means may attend."""
    query, key = torch.arange(length)[:, None], torch.arange(length)
    near = torch.ones(length, length, dtype=torch.bool) if window is None else key > query - window
    seen = (key <= query) & (near | (key < keep_first))
    return torch.stack([seen & (query < real) for real in lengths])[:, None]


def evenly(length: int, size: int, batch: int = 1) -> list[list[int]]:
    """Return pieces of `size` tokens, the last one what is left."""
    return [[min(size, length - start)] * batch for start in range(0, length, size)]


def put(cache: KVCache | RollingKVCache, case: Case, counts: Sequence[int]) -> Tensor:
    """Append the next `counts` tokens of each row; return their queries. Padding is NaN in all of them."""
    starts = cache.lengths or (0,) * len(counts)
    padded = []
    for tensor in (case.query, case.key, case.value):
        piece = tensor.new_full((*tensor.shape[:2], max(counts), tensor.shape[3]), torch.nan)
        for b, (start, count) in enumerate(zip(starts, counts, strict=True)):
            piece[b, :, :count] = tensor[b, :, start : start + count]
        padded.append(piece)
    query, key, value = padded
    cache.append(key, value, lengths=None if min(counts) == max(counts) else counts)
    return query


def attend(
    cache: KVCache | RollingKVCache, query: Tensor, *, impl: str = "auto", **options: Any
) -> AttentionResult:
    """Return what the new queries find in the cache."""
    options = {"mask": cache.mask(query.shape[2], **options), "impl": impl}
    logsumexp = ops.attention_with_logsumexp(query, cache.key, cache.value, **options).logsumexp
    return AttentionResult(ops.attention(query, cache.key, cache.value, **options), logsumexp)


def streamed(
    cache: KVCache | RollingKVCache, case: Case, pieces: Pieces, *, impl: str = "auto", **options: Any
) -> AttentionResult:
    """Return what the whole text finds, appended and attended to piece by piece."""
    output = case.query.new_zeros((*case.query.shape[:3], case.value.shape[3]))
    logsumexp = torch.full(case.query.shape[:3], -torch.inf)
    for counts in pieces:
        starts = cache.lengths or (0,) * len(counts)
        found = attend(cache, put(cache, case, counts), impl=impl, **options)
        for b, (start, count) in enumerate(zip(starts, counts, strict=True)):
            output[b, :, start : start + count] = found.output[b, :, :count]
            logsumexp[b, :, start : start + count] = found.logsumexp[b, :, :count]
            assert (found.output[b, :, count:] == 0).all(), "a padded query found something"
            assert (found.logsumexp[b, :, count:] == -torch.inf).all(), "a padded query saw a key"
    return AttentionResult(output, logsumexp)


def assert_same_as_whole(
    cache: KVCache | RollingKVCache, case: Case, pieces: Pieces, *, impl: str = "auto", **options: Any
) -> None:
    """Hold the text through the cache, in these pieces, to the reference on the whole text."""

    def attend_by_cache(query: Tensor, key: Tensor, value: Tensor, *, mask: Any) -> AttentionResult:
        return streamed(cache, Case(case.name, query, key, value), pieces, impl=impl, **options)

    assert_attends(attend_by_cache, case)


def assert_rows_of(case: Case, found: Tensor, starts: Sequence[int], counts: Sequence[int]) -> None:
    """Hold the first `counts` rows of `found`, whose queries stand at `starts` in the text, to the text."""
    plain = naive_attention(case.query, case.key, case.value, **case.options).output
    for b, (start, count) in enumerate(zip(starts, counts, strict=True)):
        rows = slice(start, start + count)
        assert_within_rule(
            found[b, :, :count], case.exact.output[b, :, rows], plain[b, :, rows], f"row {b} from {start}"
        )
