"""The kernel's memory beside inputs and output: of the order of one KV head, never seq_len x kv_len."""

import threading
import tracemalloc
from collections.abc import Callable

import pytest
import torch

from headwise import Causal, attention
from headwise.kernels import calls
from headwise.kernels.desks import desk_floats

HEAD_DIM = 48


def peak_bytes(run: Callable[[], object]) -> int:
    """Return what NumPy allocated at most during a call in a thread that keeps no scratch memory yet."""
    found = []

    def measured() -> None:
        tracemalloc.start()
        run()
        found.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    thread = threading.Thread(target=measured)
    thread.start()
    thread.join()
    return found[0]


def scratch_bytes(*, heads: int, seq_len: int, kv_len: int, threads: int) -> int:
    query = torch.randn(1, heads, seq_len, HEAD_DIM)
    key, value = torch.randn(2, 1, heads, kv_len, HEAD_DIM)
    for rows in (1, 30):  # either way is compiled before it is measured
        attention(query[:, :, :rows], key[:, :, :31], value[:, :, :31], impl="cpu")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return peak_bytes(lambda: attention(query, key, value, mask=Causal(), impl="cpu"))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 2])
def test_no_more_than_the_packed_heads_in_flight_and_a_desk_a_thread(threads: int) -> None:
    seq_len, kv_len = 1031, 2063
    packed = (kv_len + 256) * 2 * HEAD_DIM + 4096
    positions = 4 * 8 * 2 * seq_len  # the mask's two integers a row, and what they are made of
    bound = 4 * threads * (packed + desk_floats(1)) + positions + 2**16
    assert scratch_bytes(heads=5, seq_len=seq_len, kv_len=kv_len, threads=threads) < bound
    assert bound < 4 * seq_len * kv_len  # or the square would fit in too


@pytest.mark.parametrize("threads", [1, 2])
def test_shares_of_few_heads_at_a_time(threads: int) -> None:
    seq_len, kv_len, heads = 61, 8209, 67
    share = -(-kv_len // 256) * seq_len * (HEAD_DIM + 2)
    positions = 4 * 8 * 2 * seq_len
    bound = 2**24 + 4 * (share + threads * desk_floats(1)) + positions + 2**16
    assert scratch_bytes(heads=heads, seq_len=seq_len, kv_len=kv_len, threads=threads) < bound
    assert bound < 4 * heads * share


@pytest.mark.parametrize("floats", [1, 1000, 300_000])
def test_it_begins_at_a_line_of_the_cache(floats: int) -> None:
    memory, address = calls.take_memory(floats)
    assert address % 64 == 0
    assert memory.ctypes.data <= address
    assert address + 4 * floats <= memory.ctypes.data + memory.nbytes


def test_it_does_not_grow_with_the_queries() -> None:
    few, many = (scratch_bytes(heads=1, seq_len=seq_len, kv_len=4099, threads=1) for seq_len in (509, 4099))
    assert many - few < 200 * (4099 - 509)  # integers a row, not scores
