from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.cache import KVCache
from headwise.masks import Causal, CausalFrom, Window
from headwise.ops import attention

from ..attention_cases import KINDS, Case, tensors
from .streams import assert_rows_of, assert_same_as_whole, attend, causal, evenly, put, text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 2, 7, 13, 31])
def test_a_text_in_pieces_is_the_text_at_once(kind: str, size: int) -> None:
    assert_same_as_whole(KVCache(), text(kind, length=31, batch=2), evenly(31, size, batch=2))


@pytest.mark.parametrize("length", [255, 256, 257, 511, 513])
def test_tile_edges_and_growth(length: int) -> None:
    case = text(length=length)
    assert_same_as_whole(KVCache(), case, evenly(length, 97))
    assert_same_as_whole(KVCache(), case, [[length - 1], [1]])


@pytest.mark.parametrize("num_kv_heads", [1, 3, 6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_kv_heads_and_dtypes(num_kv_heads: int, dtype: torch.dtype) -> None:
    case = text("peaked", length=23, batch=3, num_kv_heads=num_kv_heads, dtype=dtype)
    cache = KVCache()
    assert_same_as_whole(cache, case, evenly(23, 5, batch=3))
    assert cache.key.dtype == cache.value.dtype == dtype


RAGGED = [[5, 0, 11], [1, 1, 1], [0, 7, 3], [1, 1, 1], [2, 0, 2]]


def test_rows_of_unequal_length() -> None:
    case = text("peaked", length=18, batch=3)
    case = replace(case, options={"mask": causal([9, 9, 18], 18)})
    cache = KVCache()
    assert_same_as_whole(cache, case, RAGGED)
    assert cache.lengths == (9, 9, 18)
    assert cache.length == cache.key.shape[2] == cache.value.shape[2] == 18


@pytest.mark.parametrize("window", [1, 4, 100])
def test_a_window(window: int) -> None:
    even = text("peaked", length=29)
    even = replace(even, options={"mask": causal([29], 29, window=window)})
    assert_same_as_whole(KVCache(), even, evenly(29, 6), window=window)
    ragged = text("peaked", length=18, batch=3)
    ragged = replace(ragged, options={"mask": causal([9, 9, 18], 18, window=window)})
    assert_same_as_whole(KVCache(), ragged, RAGGED, window=window)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(
    pieces=st.lists(st.lists(st.integers(0, 9), min_size=2, max_size=2), min_size=1, max_size=7),
    window=st.none() | st.integers(1, 12),
    kind=st.sampled_from(KINDS),
)
def test_any_pieces(*, pieces: list[list[int]], window: int | None, kind: str) -> None:
    lengths = [sum(counts) for counts in zip(*pieces, strict=True)]
    case = text(kind, length=max(lengths), batch=2)
    case = replace(case, options={"mask": causal(lengths, max(lengths), window=window)})
    assert_same_as_whole(KVCache(), case, pieces, window=window)


def test_the_mask_of_equal_rows_is_a_plain_one() -> None:
    cache = KVCache()
    put(cache, text(length=5, batch=2), [5, 5])
    assert cache.mask(5) == cache.mask(1) == Causal()
    assert cache.mask(3, window=2) == Window.of(2)


def test_the_mask_of_unequal_rows_says_where_each_stands() -> None:
    cache = KVCache()
    case = text(length=9, batch=3)
    put(cache, case, [5, 2, 0])
    assert cache.mask(5) == CausalFrom([0, 0, 0], counts=[5, 2, 0])
    # Fewer queries than new tokens: the last ones of each row.
    assert cache.mask(3) == CausalFrom([2, 0, 0], counts=[3, 2, 0])
    assert cache.mask(1, window=4) == CausalFrom([4, 1, 0], counts=[1, 1, 0], window=4)
    put(cache, case, [1, 1, 1])
    assert cache.mask(1) == CausalFrom([5, 2, 0], counts=[1, 1, 1])


def test_equal_rows_may_be_padded_too() -> None:
    cache = KVCache()
    case = text("peaked", length=5, batch=2)
    cache.append(case.key, case.value, lengths=[3, 3])
    assert cache.mask(5) == CausalFrom([0, 0], counts=[3, 3])
    assert cache.mask(3) == Causal()
    whole = replace(case, options={"mask": causal([3, 3], 5)})
    assert_rows_of(whole, attend(cache, case.query).output, [0, 0], [5, 5])


def test_the_last_queries_alone_find_what_they_find_among_all() -> None:
    case = text("peaked", length=11, batch=2)
    cache = KVCache()
    query = put(cache, case, [11, 6])
    whole = attend(cache, query)
    last = torch.stack([query[0, :, 10:11], query[1, :, 5:6]])
    found = attend(cache, last).output
    expected = torch.stack([whole.output[0, :, 10:11], whole.output[1, :, 5:6]])
    torch.testing.assert_close(found, expected)


def test_views_cost_no_copy_and_growth_is_rare() -> None:
    cache = KVCache()
    token = torch.randn(1, 2, 1, 7)
    capacities = []
    for position in range(1, 1100):
        cache.append(token, token)
        assert cache.key.data_ptr() == cache.key.data_ptr()
        assert cache.key.shape == (1, 2, position, 7)
        capacities.append(cache.capacity)
    assert sorted(set(capacities)) == [256, 512, 1024, 2048]
    assert cache.nbytes == 2 * (1 * 2 * 2048 * 7) * 4


def test_growing_moves_nothing_until_it_must() -> None:
    cache = KVCache()
    token = torch.randn(1, 2, 1, 7)
    cache.append(token, token)
    places = set()
    for _ in range(255):
        cache.append(token, token)
        places.add(cache.key.data_ptr())
    cache.crop(3)
    for _ in range(253):
        cache.append(token, token)
        places.add(cache.key.data_ptr())
    assert len(places) == 1
    cache.append(token, token)
    assert cache.key.data_ptr() not in places
    larger = cache.key.data_ptr()
    cache.crop(3)
    cache.append(token, token)
    assert cache.key.data_ptr() == larger


def test_any_strides_are_stored() -> None:
    key = torch.randn(2, 5, 3, 14)[..., ::2].transpose(1, 2)
    value = torch.randn(1, 1, 1, 5).expand(2, 3, 5, 5)
    cache = KVCache()
    cache.append(key, value)
    assert torch.equal(cache.key, key)
    assert torch.equal(cache.value, value)


def test_reordering_takes_rows_with_all_they_hold() -> None:
    case = text("peaked", length=18, batch=3)
    cache = KVCache()
    for counts in RAGGED[:3]:
        put(cache, case, counts)
    cache.reorder(torch.tensor([2, 0, 0, 1]))
    assert cache.lengths == (15, 6, 6, 8)
    rows = torch.tensor([2, 0, 0, 1])
    taken = Case("", *(tensor[rows] for tensor in (case.query, case.key, case.value)))
    found = attend(cache, put(cache, taken, [1, 3, 2, 0])).output
    whole = replace(taken, options={"mask": causal([16, 9, 8, 8], 18)})
    assert_rows_of(whole, found, [15, 6, 6, 8], [1, 3, 2, 0])


def test_cropped_tokens_are_gone() -> None:
    case = text("peaked", length=18, batch=2)
    wrong = Case(
        "", *tensors("peaked", seq_len=18, kv_len=18, num_kv_heads=2, head_dim=7, value_head_dim=5, seed=9)
    )
    cache = KVCache()
    put(cache, case, [7, 5])
    put(cache, wrong, [4, 4])  # a draft; some of it is what the model would have said, here none
    cache.crop([7, 5])
    assert cache.lengths == (7, 5)
    whole = replace(case, options={"mask": causal([18, 16], 18)})
    for starts, counts in (([7, 5], [3, 3]), ([10, 8], [8, 8])):
        assert_rows_of(whole, attend(cache, put(cache, case, counts)).output, starts, counts)
    cache.crop(2)
    assert cache.lengths == (2, 2)
    assert cache.key.shape[2] == 2
    cache.crop(0)
    assert cache.key.shape[2] == 0


def test_what_is_left_of_an_append_still_has_its_queries() -> None:
    case = text("peaked", length=9, batch=2)
    cache = KVCache()
    query = put(cache, case, [9, 6])
    before = attend(cache, query).output
    cache.crop([4, 6])
    assert cache.mask(6) == CausalFrom([0, 0], counts=[4, 6])
    after = attend(cache, query[:, :, :6]).output
    torch.testing.assert_close(after[0, :, :4], before[0, :, :4])
    torch.testing.assert_close(after[1], before[1, :, :6])


def test_after_a_reset_the_cache_is_as_new() -> None:
    cache = KVCache()
    assert (cache.lengths, cache.length, cache.capacity, cache.nbytes) == ((), 0, 0, 0)
    assert_same_as_whole(cache, text(length=11), evenly(11, 3))
    cache.reset()
    assert (cache.lengths, cache.length, cache.capacity, cache.nbytes) == ((), 0, 0, 0)
    other = text(length=13, batch=3, num_kv_heads=3, head_dim=11, dtype=torch.bfloat16)
    assert_same_as_whole(cache, other, evenly(13, 5, batch=3))


def test_nothing_is_a_fine_thing_to_append() -> None:
    for batch, new_len in ((2, 0), (0, 3), (0, 0)):
        cache = KVCache()
        query = torch.randn(batch, 6, new_len, 7)
        key = torch.randn(batch, 2, new_len, 7)
        cache.append(key, key)
        assert cache.lengths == (new_len,) * batch
        assert attention(query, cache.key, cache.value, mask=cache.mask(new_len)).shape == query.shape


def test_inference_mode_may_begin_and_end_between_appends() -> None:
    case = text(length=6)
    cache = KVCache()
    with torch.inference_mode():
        put(cache, case, [2])
    put(cache, case, [1])
    with torch.inference_mode():
        cache.reorder([0])
    put(cache, case, [1])
    with torch.inference_mode():
        query = put(cache, case, [2])
        found = attend(cache, query).output
    assert_rows_of(case, found, [4], [2])


def test_under_no_grad_a_parameter_may_be_stored() -> None:
    cache = KVCache()
    key = torch.randn(1, 2, 3, 7, requires_grad=True)
    with torch.no_grad():
        cache.append(key, key)
    cache.append(key.detach(), key.detach())
    assert not cache.key.requires_grad
