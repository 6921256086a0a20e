from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.cache import KVCache, RollingKVCache
from headwise.cache.rolling import TILE
from headwise.masks import CausalFrom, Dense, Window
from headwise.ops import attention

from ..attention_cases import KINDS, Case, tensors
from .streams import assert_rows_of, assert_same_as_whole, attend, causal, evenly, put, streamed, text


def rolling_text(
    kind: str, lengths: list[int], *, window: int, keep_first: int, dtype: torch.dtype = torch.float32
) -> Case:
    length = max(lengths)
    case = text(kind, length=length, batch=len(lengths), num_heads=2, num_kv_heads=1, head_dim=5, dtype=dtype)
    mask = causal(lengths, length, window=window, keep_first=keep_first)
    return replace(case, options={"mask": mask})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("window", "keep_first"), [(1, 0), (7, 3), (1, 31), (256, 0), (256, 31)])
@pytest.mark.parametrize("size", [13, 317])
def test_a_text_in_pieces_is_the_text_at_once(kind: str, window: int, keep_first: int, size: int) -> None:
    case = rolling_text(kind, [1201], window=window, keep_first=keep_first)
    assert_same_as_whole(RollingKVCache(window=window, keep_first=keep_first), case, evenly(1201, size))


@pytest.mark.parametrize(("window", "keep_first"), [(7, 0), (7, 3)])
def test_a_text_token_by_token(window: int, keep_first: int) -> None:
    case = rolling_text("peaked", [1201], window=window, keep_first=keep_first)
    assert_same_as_whole(RollingKVCache(window=window, keep_first=keep_first), case, evenly(1201, 1))


@pytest.mark.parametrize("length", [TILE - 1, TILE, TILE + 1, 3 * TILE + 1])
@pytest.mark.parametrize("keep_first", [0, 5, TILE - 1, TILE, TILE + 1])
def test_tile_edges(length: int, keep_first: int) -> None:
    case = rolling_text("peaked", [length], window=TILE + 1, keep_first=keep_first)
    for pieces in (evenly(length, 101), [[length - 1], [1]], [[1], [length - 1]]):
        assert_same_as_whole(RollingKVCache(window=TILE + 1, keep_first=keep_first), case, pieces)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_kv_heads_and_dtypes(dtype: torch.dtype) -> None:
    case = text("peaked", length=701, num_kv_heads=3, dtype=dtype)
    case = replace(case, options={"mask": causal([701], 701, window=61, keep_first=4)})
    assert_same_as_whole(RollingKVCache(window=61, keep_first=4), case, evenly(701, 53))


@settings(max_examples=30, derandomize=True, deadline=None)
@given(
    pieces=st.lists(
        st.lists(st.sampled_from([0, 1, 2, 29, 101, 255, 256, 257, 401]), min_size=2, max_size=2),
        min_size=1,
        max_size=6,
    ),
    window=st.sampled_from([1, 2, 17, 255, 256, 257]),
    keep_first=st.sampled_from([0, 1, 4, 255, 256, 259]),
    kind=st.sampled_from(KINDS),
)
def test_any_pieces_of_unequal_rows(
    *, pieces: list[list[int]], window: int, keep_first: int, kind: str
) -> None:
    lengths = [sum(counts) for counts in zip(*pieces, strict=True)]
    case = rolling_text(kind, lengths, window=window, keep_first=keep_first)
    assert_same_as_whole(RollingKVCache(window=window, keep_first=keep_first), case, pieces)


def positions(start: int, count: int) -> torch.Tensor:
    return torch.arange(start, start + count, dtype=torch.float64).reshape(1, 1, count, 1)


@pytest.mark.parametrize("keep_first", [0, 4, 300])
@pytest.mark.parametrize("size", [1, 77, 700])
def test_each_key_keeps_its_place_in_its_tile_and_tiles_their_order(keep_first: int, size: int) -> None:
    cache = RollingKVCache(window=200, keep_first=keep_first)
    for start in range(0, 3000, size):
        cache.append(positions(start, size), positions(start, size))
        held = cache.key.flatten()
        assert torch.equal(held % TILE, torch.arange(len(held), dtype=torch.float64) % TILE)
        assert (held.diff() > 0).all()
        for tile in held.split(TILE):
            assert len((tile // TILE).unique()) == 1, "keys of different tiles share one"
        needed = [*range(min(keep_first, start)), *range(max(0, start - 199), start + size)]
        assert set(needed) <= set(held.int().tolist())


@pytest.mark.parametrize(("window", "keep_first"), [(1, 0), (200, 4), (5000, 300)])
def test_memory_does_not_grow_and_keys_move_rarely(window: int, keep_first: int) -> None:
    cache = RollingKVCache(window=window, keep_first=keep_first)
    fronts, moves = set(), []
    for position in range(3 * window + 3000):
        cache.append(positions(position, 1), positions(position, 1))
        front = cache.key[0, 0, min(-(-keep_first // TILE) * TILE, cache.key.shape[2] - 1), 0].item()
        if position > 2 * window + 600 and front not in fronts:
            moves.append(position)
        fronts.add(front)
    assert cache.capacity <= keep_first + window * 9 // 8 + 4 * TILE
    assert cache.nbytes == 2 * cache.capacity * 8
    assert len(moves) > 1
    assert min(later - earlier for earlier, later in pairwise(moves)) >= max(TILE, window // 8)


def test_a_long_piece_is_held_for_its_own_call_only() -> None:
    cache = RollingKVCache(window=64, keep_first=4)
    for _ in range(3):
        cache.append(positions(0, 5000), positions(0, 5000))
        assert 5000 <= cache.capacity <= 5000 + 64 + 4 + 4 * TILE
    cache.append(positions(0, 1), positions(0, 1))
    assert cache.capacity <= 64 * 9 // 8 + 4 + 4 * TILE


def test_a_short_text_takes_little_room() -> None:
    cache = RollingKVCache(window=30_000)
    cache.append(positions(0, 5), positions(0, 5))
    assert cache.capacity == 256


def test_rows_of_very_unequal_length_hold_no_more_than_the_window() -> None:
    cache = RollingKVCache(window=100, keep_first=4)
    key = torch.zeros(2, 1, 3000, 1)
    cache.append(key, key, lengths=[3000, 3])
    token = key[:, :, :1]
    for _ in range(5):
        cache.append(token, token)
    assert cache.lengths == (3005, 8)
    assert cache.capacity <= 100 * 9 // 8 + 4 + 4 * TILE


def test_without_first_tokens_the_mask_is_structured() -> None:
    cache = RollingKVCache(window=9)
    key = torch.zeros(2, 1, 700, 1)
    cache.append(key, key)
    assert cache.mask(3) == Window.of(9)
    cache.append(key, key, lengths=[700, 2])
    assert cache.mask(2) == CausalFrom([1398 - 512, 700 - 512], counts=[2, 2], window=9)
    cache.append(key[:, :, :1], key[:, :, :1])
    assert cache.mask(1) == CausalFrom([1400 - 1280, 702 - 512], counts=[1, 1], window=9)


def test_with_first_tokens_the_mask_is_one_row_of_booleans_for_equal_rows() -> None:
    cache = RollingKVCache(window=2, keep_first=1)
    key = torch.zeros(3, 1, 5, 1)
    cache.append(key, key)
    mask = cache.mask(2)
    assert isinstance(mask, Dense)
    assert mask.tensor.int().tolist() == [[[1, 0, 1, 1, 0], [1, 0, 0, 1, 1]]]
    cache.append(key, key, lengths=[1, 0, 1])
    assert cache.mask(2).tensor.int().tolist() == [
        [[1, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0]],
        [[0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]],
        [[1, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0]],
    ]


@pytest.mark.parametrize("keep_first", [0, 5])
def test_nothing_is_a_fine_thing_to_append(keep_first: int) -> None:
    for batch, new_len in ((2, 0), (0, 3), (0, 0)):
        cache = RollingKVCache(window=67, keep_first=keep_first)
        query, key = torch.randn(batch, 6, new_len, 7), torch.randn(batch, 2, new_len, 7)
        cache.append(key, key)
        assert cache.lengths == (new_len,) * batch
        assert attention(query, cache.key, cache.value, mask=cache.mask(new_len)).shape == query.shape


@pytest.mark.parametrize("keep_first", [0, 5])
def test_the_tokens_of_the_last_append_can_be_taken_back(keep_first: int) -> None:
    lengths = [1100, 920]
    case = rolling_text("peaked", lengths, window=67, keep_first=keep_first)
    draft = tensors(
        "peaked", batch=2, num_heads=2, num_kv_heads=1, seq_len=7, kv_len=7, head_dim=5, value_head_dim=5
    )
    cache = RollingKVCache(window=67, keep_first=keep_first)
    streamed(cache, case, [[300, 120]])
    while cache.lengths != (1100, 920):
        before = cache.lengths
        cache.append(*draft[1:])
        cache.crop(before)
        assert cache.lengths == before
        found = attend(cache, put(cache, case, [100, 100])).output
        assert_rows_of(case, found, before, [100, 100])


@pytest.mark.parametrize("keep_first", [0, 5])
def test_reordering_takes_rows_with_all_they_hold(keep_first: int) -> None:
    case = rolling_text("peaked", [1000, 600], window=67, keep_first=keep_first)
    cache = RollingKVCache(window=67, keep_first=keep_first)
    streamed(cache, case, [[100, 50]] * 9)
    cache.reorder([1, 0, 1])
    assert cache.lengths == (450, 900, 450)
    rows = torch.tensor([1, 0, 1])
    taken = Case("", *(tensor[rows] for tensor in (case.query, case.key, case.value)))
    found = attend(cache, put(cache, taken, [30, 20, 10])).output
    whole = replace(taken, options={"mask": case.options["mask"][rows]})
    assert_rows_of(whole, found, [450, 900, 450], [30, 20, 10])


def test_until_the_window_is_full_both_caches_hold_the_same() -> None:
    case = text(length=40, batch=2)
    rolling, growing = RollingKVCache(window=64, keep_first=3), KVCache()
    for cache in (rolling, growing):
        put(cache, case, [30, 20])
    for name in ("key", "value"):
        for b, real in enumerate((30, 20)):
            assert torch.equal(getattr(rolling, name)[b, :, :real], getattr(growing, name)[b, :, :real])
