"""The list of work of a problem, and how threads share it out.

The list depends on the shape alone. Threads take the next entry from a counter they share, and no entry's
result depends on who computes it. A wait is always for entries further up the list, which somebody has
already taken, so it ends.
"""

from __future__ import annotations

from headwise.kernels.emission import inner, leaf
from headwise.kernels.geometry import BLOCK_ROWS, TILE
from headwise.kernels.memory import Floats, Integers, fetch_add, load_shared, moved, yield_thread
from headwise.kernels.packed import attend_block, pack_tile, packed_head_floats
from headwise.kernels.problem import Desk, Problem
from headwise.kernels.rows import write_skipped_heads
from headwise.kernels.streamed import CHUNK_TILES, attend_chunk, join_shares, share_size

NEXT, FINISHED, NEXT_DESK, LATE, PER_HEAD = range(5)
"""The counters: entries taken, entries done, desks taken, threads that came when all was done, and from there
on one or two for each KV head."""

_SPINS = 64
"""How often a waiting thread looks before it lets others run."""


@leaf
def tile_count(problem: Problem) -> int:
    """Return how many tiles the keys have."""
    return (problem.kv_len + TILE - 1) // TILE


@leaf
def group_rows(problem: Problem) -> int:
    """Return how many rows read one KV head, all heads working."""
    return problem.num_heads // problem.num_kv_heads * problem.seq_len


@leaf
def packed_entries_per_head(problem: Problem) -> int:
    """Return how many entries a KV head has whose tiles are packed: one a tile, one a block of rows."""
    return tile_count(problem) + _blocks(problem)


@leaf
def streamed_entries_per_head(problem: Problem) -> int:
    """Return how many entries a KV head has that is streamed: one a chunk of tiles."""
    return max(1, (tile_count(problem) + CHUNK_TILES - 1) // CHUNK_TILES)


@leaf
def _blocks(problem: Problem) -> int:
    return (group_rows(problem) + BLOCK_ROWS - 1) // BLOCK_ROWS


@leaf
def take_entry(counters: Integers) -> int:
    """Return the number of the next entry that nobody has taken."""
    taken: int = fetch_add(moved(counters, NEXT), 1)
    return taken


@leaf
def tick_off(counters: Integers) -> None:
    """Note that an entry is done."""
    fetch_add(moved(counters, FINISHED), 1)


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
def pack_or_attend(
    problem: Problem, desk: Desk, heads: Integers, counters: Integers, buffers: Floats, ring: int, entry: int
) -> None:
    """Do one entry: pack a tile of a KV head, or, once all are packed, attend with a block of its rows."""
    all_heads, tiles, blocks = problem.batch * problem.num_kv_heads, tile_count(problem), _blocks(problem)
    head, number = divmod(entry, tiles + blocks)
    packed_tiles, done_blocks = moved(counters, PER_HEAD), moved(counters, PER_HEAD + all_heads)
    batch, kv_head = divmod(head, problem.num_kv_heads)
    size = packed_head_floats(problem.kv_len, problem.head_dim, problem.value_head_dim)
    packed = moved(buffers, head % ring * size)
    if number < tiles:
        if head >= ring:
            wait_for(moved(done_blocks, head - ring), blocks)
        low, high = _visible(problem, batch)
        tile = number * TILE
        if tile < high and low < tile + TILE:
            pack_tile(problem, desk, batch, kv_head, tile, packed)
        fetch_add(moved(packed_tiles, head), 1)
        return
    wait_for(moved(packed_tiles, head), tiles)
    block = blocks - 1 - (number - tiles)  # under a causal mask the last rows take longest
    if block == 0:
        write_skipped_heads(problem, batch, kv_head)
    attend_block(problem, desk, batch, kv_head, heads, block * BLOCK_ROWS, packed)
    fetch_add(moved(done_blocks, head), 1)


@inner
def stream(
    problem: Problem, desk: Desk, heads: Integers, counters: Integers, buffers: Floats, entry: int
) -> None:
    """Do one entry: a chunk of a KV head's tiles; and join the chunks, if it is the head's last."""
    chunks = streamed_entries_per_head(problem)
    head, number = divmod(entry, chunks)
    batch, kv_head = divmod(head, problem.num_kv_heads)
    size = tile_count(problem) * share_size(group_rows(problem), problem.value_head_dim)
    shares = moved(buffers, head * size)
    low, high = _visible(problem, batch)
    first, last = low // TILE, (high + TILE - 1) // TILE
    begin = max(number * CHUNK_TILES, first)
    attend_chunk(problem, desk, batch, kv_head, heads, begin, min((number + 1) * CHUNK_TILES, last), shares)
    if fetch_add(moved(counters, PER_HEAD + head), 1) == chunks - 1:
        write_skipped_heads(problem, batch, kv_head)
        join_shares(problem, desk, batch, kv_head, heads, first, last, shares)


@inner
def _visible(problem: Problem, batch: int) -> tuple[int, int]:
    """Return the first key that any row of a batch element sees, and where they end; 0, 0 if none is seen."""
    low, high = problem.kv_len, 0
    place = batch * problem.interval_stride
    for position in range(place, place + problem.seq_len):
        if problem.starts[position] < problem.stops[position]:
            low, high = min(low, problem.starts[position]), max(high, problem.stops[position])
    return min(low, high), high
