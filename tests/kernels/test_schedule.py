"""The order in which few rows stream through the keys: every chunk once, some heads at a time."""

import pytest

from headwise.kernels import schedule


def entries(heads: int, chunks: int, ring: int) -> list[tuple[int, int]]:
    head_at = schedule.head_at.py_func
    return [(head_at(turn, heads, ring), chunk) for turn, chunk in turns(heads, chunks, ring)]


def turns(heads: int, chunks: int, ring: int) -> list[tuple[int, int]]:
    in_order = schedule.streamed_entry.py_func
    return [in_order(taken, heads, chunks, ring) for taken in range(heads * chunks)]


@pytest.mark.parametrize("ring", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("chunks", [1, 2, 5])
@pytest.mark.parametrize("heads", [8, 9, 13])
def test_every_chunk_of_every_head_is_streamed_once(heads: int, chunks: int, ring: int) -> None:
    wanted = [(head, chunk) for head in range(heads) for chunk in range(chunks)]
    assert sorted(entries(heads, chunks, ring)) == wanted


@pytest.mark.parametrize(("heads", "chunks", "ring"), [(8, 4, 2), (9, 3, 2), (13, 5, 4)])
def test_threads_in_step_read_heads_of_their_own(heads: int, chunks: int, ring: int) -> None:
    found, each = entries(heads, chunks, ring), heads // ring
    for thread in range(ring):
        own = found[thread : each * ring * chunks : ring]
        heads_of_thread = range(thread * each, (thread + 1) * each)
        assert own == [(head, chunk) for head in heads_of_thread for chunk in range(chunks)]
    rest = range(each * ring, heads)
    assert found[each * ring * chunks :] == [(head, chunk) for head in rest for chunk in range(chunks)]


def test_one_thread_reads_head_by_head() -> None:
    assert entries(3, 2, 1) == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]


@pytest.mark.parametrize("ring", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("heads", [8, 9, 13])
def test_turns_are_the_order_in_which_heads_begin(heads: int, ring: int) -> None:
    assert [turn for turn, chunk in turns(heads, 3, ring) if chunk == 0] == list(range(heads))


@pytest.mark.parametrize("ring", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("chunks", [1, 2, 5])
@pytest.mark.parametrize("heads", [8, 9, 13, 40])
def test_whom_a_turn_waits_for_is_wholly_further_up_the_list(heads: int, chunks: int, ring: int) -> None:
    found, places = turns(heads, chunks, ring), schedule.share_places(heads, ring, 2**30)
    assert places == min(heads, 2 * ring)
    for turn in range(places, heads):
        assert found.index((turn - places, chunks - 1)) < found.index((turn, 0))


def test_shares_of_short_texts_have_room_for_every_head() -> None:
    assert schedule.share_places(300, 2, 1000) == 300
