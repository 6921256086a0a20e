"""The list of work of a problem, and how threads share it out.

The list depends on the shape and on how many threads are asked for. They take the next entry from a counter
they share, and no entry's result depends on who computes it. A wait is always for entries further up the
list, which somebody has already taken, so it ends.
"""

from __future__ import annotations

from headwise.kernels.emission import inner, leaf
from headwise.kernels.geometry import TILE
from headwise.kernels.host import BLOCK_ROWS
from headwise.kernels.memory import Floats, Integers, fetch_add, load_shared, moved, yield_thread
from headwise.kernels.packed import pack_tile
from headwise.kernels.problem import Desk, Problem
from headwise.kernels.streamed import CHUNK_TILES

NEXT, FINISHED, NEXT_DESK, LATE, PER_HEAD = range(5)
"""The counters: entries taken, entries done, desks taken, threads that came when all was done, and from there
on one or two for each KV head."""

_SHARES = 2**22
"""Numbers of shares, 16 MiB, for which there is always room."""

_SPINS = 64
"""How often a waiting thread looks before it lets others run."""


@leaf
def head_count(problem: Problem) -> int:
    """Return how many KV heads there are, over the batch."""
    return problem.batch * problem.num_kv_heads


@leaf
def tile_count(problem: Problem) -> int:
    """Return how many tiles the keys have."""
    return (problem.kv_len + TILE - 1) // TILE


@leaf
def group_rows(problem: Problem) -> int:
    """Return how many rows read one KV head, all heads working."""
    return problem.num_heads // problem.num_kv_heads * problem.seq_len


@leaf
def block_count(problem: Problem) -> int:
    """Return how many blocks these rows make."""
    return (group_rows(problem) + BLOCK_ROWS - 1) // BLOCK_ROWS


@leaf
def whole_heads(heads: int, ring: int) -> int:
    """Return how many KV heads are one entry each, all their tiles and blocks; the rest are shared in parts.

    What a thread has packed lies in its own cache, and nobody waits for it. As many heads as are packed at a
    time are left to be shared, so that all threads end together.
    """
    return heads - ring


@leaf
def streamed_chunks(problem: Problem) -> int:
    """Return how many chunks of tiles a KV head is streamed in."""
    return max(1, (tile_count(problem) + CHUNK_TILES - 1) // CHUNK_TILES)


@leaf
def streamed_entry(taken: int, heads: int, chunks: int, ring: int) -> tuple[int, int]:
    """Return the turn and the chunk of the entry that was taken as number `taken`; each head has one turn.

    As many heads as there are threads are streamed at a time, each by a thread as long as they keep in step:
    two threads that read one head's keys side by side wait for the same banks of memory. What does not go
    round evenly comes last, head by head.
    """
    if taken < heads // ring * chunks * ring:
        step, run = divmod(taken, ring)
        number, chunk = divmod(step, chunks)
        return number * ring + run, chunk
    turn, chunk = divmod(taken, chunks)
    return turn, chunk


@leaf
def head_at(turn: int, heads: int, ring: int) -> int:
    """Return the KV head of a turn: threads in step have heads side by side of their own."""
    length = heads // ring
    if turn >= ring * length:
        return turn
    number, run = divmod(turn, ring)
    return run * length + number


def share_places(heads: int, ring: int, size: int) -> int:
    """Return for how many KV heads there is room for the shares of their tiles, of `size` numbers a head.

    Two for each thread at least: who is through with one head begins the next, while the shares of the first
    may wait for a chunk that another thread still has. More of them let a thread that is held up be.
    """
    return min(heads, max(2 * ring, _SHARES // max(1, size)))


places_for_shares = inner(share_places)


@leaf
def take_entry(counters: Integers) -> int:
    """Return the number of the next entry that nobody has taken."""
    taken: int = fetch_add(moved(counters, NEXT), 1)
    return taken


@leaf
def tick_off(counter: Integers) -> int:
    """Note in a shared counter that something is done; return how many were before."""
    done: int = fetch_add(counter, 1)
    return done


@leaf
def note_arrival(counters: Integers, count: int) -> None:
    """Note whether a thread that begins comes too late to help."""
    if load_shared(moved(counters, FINISHED)) == count:
        fetch_add(moved(counters, LATE), 1)


@leaf
def wait_for(counter: Integers, count: int) -> None:
    """Wait until a shared counter has come to `count`."""
    spins = 0
    while load_shared(counter) < count:
        spins += 1
        if spins > _SPINS:
            yield_thread()


@inner
def pack_if_seen(problem: Problem, desk: Desk, batch: int, kv_head: int, tile: int, packed: Floats) -> None:
    """Pack a tile of a KV head, unless no row of the batch element sees any of it."""
    low, high = visible_keys(problem, batch)
    if tile < high and low < tile + TILE:
        pack_tile(problem, desk, batch, kv_head, tile, packed)


@inner
def visible_keys(problem: Problem, batch: int) -> tuple[int, int]:
    """Return the first key that any row of a batch element sees, and where they end; 0, 0 if none is seen."""
    low, high = problem.kv_len, 0
    place = batch * problem.interval_stride
    for position in range(place, place + problem.seq_len):
        if problem.starts[position] < problem.stops[position]:
            low, high = min(low, problem.starts[position]), max(high, problem.stops[position])
    return min(low, high), high
