"""Which problems stream through keys as they lie and which pack them first, and that no bit hangs on it."""

import time
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest
import torch

from headwise.kernels import attend, calls, frame
from headwise.kernels.attend import Sizes
from headwise.kernels.geometry import DESK_ROWS, TILE
from headwise.kernels.host import GEOMETRY
from headwise.kernels.schedule import FINISHED, NEXT, PER_HEAD, share_places
from headwise.kernels.streamed import share_floats
from headwise.kernels.ways import PACKED, STREAMED
from headwise.masks import Causal, Window
from headwise.ops import AttentionResult, attention_with_logsumexp

from ..attention_cases import Case, tensors
from .bits import assert_same_bits, threads
from .ways import by_kernel


@pytest.fixture(autouse=True)
def _no_way_remembered() -> Iterator[None]:
    yield
    attend._work.cache_clear()


def taken_by(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    attend._work.cache_clear()
    monkeypatch.setattr(attend, "_streams", lambda sizes, rows: way == STREAMED)


def way_of(seq_len: int, kv_len: int, *, group_size: int = 1, head_dim: int = 64) -> str:
    work = attend._work(Sizes(1, 2 * group_size, 2, seq_len, kv_len, head_dim, head_dim), 1)
    assert work is not None
    return work.way


MASKS = {"none": None, "causal": Causal(), "window": Causal() & Window.of(37)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("group_size", "seq_len"), [(1, 1), (1, 9), (3, 11), (4, 16), (1, 64), (7, 9)])
def test_both_ways_give_the_same_bits(
    group_size: int, seq_len: int, mask: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"num_heads": 2 * group_size, "num_kv_heads": 2, "seq_len": seq_len, "kv_len": 2 * TILE + 43}
    case = Case("", *tensors("peaked", head_dim=48, value_head_dim=80, dtype=dtype, **sizes))
    found = []
    for way in (STREAMED, PACKED):
        taken_by(monkeypatch, way)
        found.append(by_kernel(case.query, case.key, case.value, mask=MASKS[mask]))
    assert_same_bits(*found, f"{group_size} x {seq_len} rows, {mask}")


@pytest.mark.parametrize("kv_len", [16, 128, 4096])
def test_a_token_of_multi_head_attention_streams(kv_len: int) -> None:
    assert way_of(1, kv_len) == STREAMED


@pytest.mark.parametrize("group_size", [3, 4, 8])
def test_a_token_of_grouped_heads_streams_through_a_text(group_size: int) -> None:
    assert way_of(1, 1024, group_size=group_size) == STREAMED


def test_a_short_prompt_is_packed() -> None:
    assert [way_of(seq_len, seq_len) for seq_len in (8, 16, 32, DESK_ROWS)] == [PACKED] * 4


def test_a_chunk_behind_a_long_text_streams() -> None:
    assert [way_of(seq_len, 65_536) for seq_len in (8, 32, DESK_ROWS)] == [STREAMED] * 3


def test_more_rows_than_a_desk_has_room_for_are_packed() -> None:
    assert way_of(DESK_ROWS + 1, 1_000_000) == PACKED


def test_the_border_grows_with_the_square_of_the_rows() -> None:
    least = GEOMETRY.worth_streaming * 12 * 12 // 128
    assert [way_of(12, kv_len) for kv_len in (least - 1, least)] == [PACKED, STREAMED]


def test_no_keys_at_all_stream_nowhere() -> None:
    assert way_of(1, 0) == PACKED


@pytest.mark.parametrize("count", [1, 2, 3])
def test_more_heads_than_there_is_room_for_shares(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of eight heads: a head takes the place of another only once that one's shares are joined."""
    heads, rows, kv_len, width = 13, 8 * 8, 65 * TILE + 7, 256
    size = -(-kv_len // TILE) * share_floats(rows, width)
    assert share_places(heads, 1, size) < heads
    torch.manual_seed(0)
    query = torch.randn(1, 8 * heads, 8, 8)
    key, value = torch.randn(1, heads, kv_len, 8), torch.randn(1, heads, kv_len, width)
    taken_by(monkeypatch, STREAMED)
    alone = [
        by_kernel(query[:, 8 * head : 8 * head + 8], key[:, head : head + 1], value[:, head : head + 1])
        for head in range(heads)
    ]
    expected = AttentionResult(*(torch.cat(parts, dim=1) for parts in zip(*alone, strict=True)))
    with threads(count):
        for _ in range(3):
            assert_same_bits(by_kernel(query, key, value), expected, f"{count} threads")


def test_a_head_waits_for_the_place_of_one_that_is_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    heads, rows, kv_len, width = 70, 8 * 8, 4 * TILE, 256  # a head is one entry of work
    places = share_places(heads, 1, 4 * share_floats(rows, width))
    assert places < heads
    taken_by(monkeypatch, STREAMED)
    torch.manual_seed(0)
    query = torch.randn(1, 8 * heads, 8, 8)
    key, value = torch.randn(1, heads, kv_len, 8), torch.randn(1, heads, kv_len, width)
    with threads(1):
        expected = attention_with_logsumexp(query, key, value, impl="cpu")

        def beside_a_thread_that_is_held_up(entry: Any, slots: Any, _threads: int, _held: object) -> None:
            counters = frame._COUNTERS
            slots[counters + NEXT] = 1  # it has taken the first head,
            slots[counters + PER_HEAD] = 1  # streamed its only chunk, and not joined it
            worker = Thread(target=entry, args=(slots,), daemon=True)
            worker.start()
            end = time.monotonic() + 60
            while slots[counters + FINISHED] < places - 1 and time.monotonic() < end:
                time.sleep(0.01)
            time.sleep(0.2)
            assert slots[counters + FINISHED] == places - 1
            slots[counters + PER_HEAD] = 2  # now it is joined
            slots[counters + FINISHED] += 1
            worker.join(timeout=60)
            assert not worker.is_alive()

        monkeypatch.setattr(calls, "run", beside_a_thread_that_is_held_up)
        found = attention_with_logsumexp(query, key, value, impl="cpu")
    others = (AttentionResult(*(each[:, 8:] for each in result)) for result in (found, expected))
    assert_same_bits(*others, "all heads but the first")
