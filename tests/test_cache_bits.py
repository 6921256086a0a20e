"""A prompt gives the same bits whole, in chunks or token by token, through every cache.

The whole prompt goes in one call with an equal dense mask; the pieces go through a cache, whose buffer grows,
drops what no query sees and moves by tiles. Only the CPU kernel promises this.
"""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise import ops
from headwise.cache import KVCache, RollingKVCache
from headwise.cache.rolling import TILE
from headwise.masks import Causal, Dense

from .attention_cases import KINDS, Case, tensors
from .cache.streams import causal, evenly, streamed

IMPL = "cpu"

LENGTHS = (TILE - 1, TILE, TILE + 1, 2 * TILE + 3, 1201)
WINDOWS = ((1, 0), (67, 0), (67, 4), (TILE, 0), (TILE + 1, TILE + 5), (40, TILE))


def text(
    length: int,
    *,
    kind: str = "peaked",
    batch: int = 1,
    dtype: torch.dtype = torch.float32,
    head_dim: int = 24,
) -> Case:
    made = tensors(
        kind,
        batch=batch,
        num_heads=6,
        num_kv_heads=2,
        seq_len=length,
        kv_len=length,
        head_dim=head_dim,
        value_head_dim=19,
        dtype=dtype,
    )
    return Case("text", *made)


def assert_same_bits(
    cache: KVCache | RollingKVCache, case: Case, pieces: list[list[int]], seen: torch.Tensor
) -> None:
    """Hold the text through the cache to the whole text under the mask `seen`, bit for bit."""
    options = {"mask": Dense(seen), "impl": IMPL}
    whole = ops.attention_with_logsumexp(case.query, case.key, case.value, **options)
    found = streamed(cache, case, pieces, impl=IMPL)
    for b, real in enumerate(cache.lengths):
        for name in ("output", "logsumexp"):
            ours, theirs = (getattr(result, name)[b, :, :real] for result in (found, whole))
            differing = (ours != theirs).sum().item()
            assert differing == 0, f"{name} of row {b}: {differing} of {ours.numel()} numbers differ"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("length", LENGTHS)
def test_a_prompt_in_chunks(length: int, dtype: torch.dtype) -> None:
    case = text(length, dtype=dtype)
    for size in (13, 97, TILE, 509):
        assert_same_bits(KVCache(), case, evenly(length, size), causal([length], length))


@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_token_by_token(kind: str) -> None:
    length = 2 * TILE + 3
    assert_same_bits(KVCache(), text(length, kind=kind), evenly(length, 1), causal([length], length))


def test_a_mask_object_is_the_dense_tensor() -> None:
    case = text(2 * TILE + 3)
    seen = causal([2 * TILE + 3], 2 * TILE + 3)
    dense, structured = (
        ops.attention_with_logsumexp(case.query, case.key, case.value, mask=mask, impl=IMPL)
        for mask in (Dense(seen), Causal())
    )
    assert torch.equal(dense.output, structured.output)
    assert torch.equal(dense.logsumexp, structured.logsumexp)


@pytest.mark.parametrize(("window", "keep_first"), WINDOWS)
@pytest.mark.parametrize("size", [1, 13, 317, 1201])
def test_a_rolling_cache(window: int, keep_first: int, size: int) -> None:
    seen = causal([1201], 1201, window=window, keep_first=keep_first)
    cache = RollingKVCache(window=window, keep_first=keep_first)
    assert_same_bits(cache, text(1201), evenly(1201, size), seen)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_rolling_cache_in_16_bits(dtype: torch.dtype) -> None:
    seen = causal([1201], 1201, window=67, keep_first=4)
    case = text(1201, dtype=dtype)
    assert_same_bits(RollingKVCache(window=67, keep_first=4), case, evenly(1201, 53), seen)


PIECES = st.lists(
    st.lists(st.sampled_from([0, 1, 2, 29, TILE - 1, TILE, TILE + 1, 401]), min_size=2, max_size=2),
    min_size=1,
    max_size=6,
)


@settings(max_examples=40, derandomize=True, deadline=None)
@given(pieces=PIECES, kind=st.sampled_from(KINDS), rolls=st.none() | st.sampled_from(WINDOWS))
def test_rows_of_unequal_length(*, pieces: list[list[int]], kind: str, rolls: tuple[int, int] | None) -> None:
    lengths = [sum(counts) for counts in zip(*pieces, strict=True)]
    window, keep_first = rolls or (None, 0)
    cache = KVCache() if window is None else RollingKVCache(window=window, keep_first=keep_first)
    seen = causal(lengths, max(lengths), window=window, keep_first=keep_first)
    assert_same_bits(cache, text(max(lengths), kind=kind, batch=2), pieces, seen)


@pytest.mark.parametrize("make", [KVCache, lambda: RollingKVCache(window=67, keep_first=4)])
def test_a_row_finds_in_a_batch_what_it_finds_alone(make: Callable[[], KVCache | RollingKVCache]) -> None:
    case = text(700, batch=3)
    pieces = [[300, 17, 256], [1, 1, 1], [101, 0, 5], [1, 1, 1]]
    together = streamed(make(), case, pieces, impl=IMPL)
    for b in range(3):
        alone = Case("alone", *(tensor[b : b + 1] for tensor in (case.query, case.key, case.value)))
        found = streamed(make(), alone, [[counts[b]] for counts in pieces], impl=IMPL)
        assert torch.equal(found.output[0], together.output[b])
        assert torch.equal(found.logsumexp[0], together.logsumexp[b])
