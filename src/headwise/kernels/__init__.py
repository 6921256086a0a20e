"""The CPU kernel: exact attention on NumPy arrays, compiled by Numba for the very processor.

Same bits from run to run, whatever the threads, the batch, the strides, the grouping of heads or the chunks
in which a sequence comes. How: key tiles lie at absolute positions, each row's sums are chains in a fixed
order that its neighbours do not touch, tiles are joined in the order of the keys, a hidden tile adds nothing,
and the list of work depends on the shape alone.

From the outside in: `attend` (the way in), `pool` (threads), `compiled` and `entry` (compiling), `schedule` (the
list of work); `packed` (many rows) and `streamed` (few rows), on `rows`, `tiles`, `bringing` and `careful`; below
them the vector code: `products`, `streaming`, `softmax`, `ledger`, `exponential`, `packing`; and `geometry`, what
all of it is measured by. Nothing here is imported before the kernel is first needed.
"""
