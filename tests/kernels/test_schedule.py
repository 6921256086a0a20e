"""The order in which few rows stream through the keys: every chunk once, some heads at a time."""

import pytest

from headwise.kernels import schedule


def entries(heads: int, chunks: int, ring: int) -> list[tuple[int, int]]:
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
    begun = [head for head, chunk in entries(heads, 3, ring) if chunk == 0]
    turn_of, head_at = schedule.turn_of.py_func, schedule.head_at.py_func
    assert [turn_of(head, heads, ring) for head in begun] == list(range(heads))
    assert [head_at(turn, heads, ring) for turn in range(heads)] == begun


@pytest.mark.parametrize("ring", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("chunks", [1, 2, 5])
@pytest.mark.parametrize("heads", [8, 9, 13, 40])
def test_whom_a_head_waits_for_is_wholly_further_up_the_list(heads: int, chunks: int, ring: int) -> None:
    found, head_at = entries(heads, chunks, ring), schedule.head_at.py_func
    places = schedule.share_places(heads, ring, 2**30)
    assert places == min(heads, 2 * ring)
    for turn in range(places, heads):
        first = found.index((head_at(turn, heads, ring), 0))
        last = found.index((head_at(turn - places, heads, ring), chunks - 1))
        assert last < first


def test_shares_of_short_texts_have_room_for_every_head() -> None:
    assert schedule.share_places(300, 2, 1000) == 300
