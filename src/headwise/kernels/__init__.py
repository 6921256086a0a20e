"""The CPU kernel: exact attention on NumPy arrays, compiled by Numba for the very processor.

Same bits from run to run, whatever the threads, the batch, the strides, the grouping of heads or the chunks
in which a sequence comes. How: key tiles lie at absolute positions, each row's sums are chains in a fixed
order that its neighbours do not touch, tiles are joined in the order of the keys, a hidden tile adds nothing,
and the list of work depends on the shape alone.

From the outside in:

- `attend` and `observe`, the ways in; `calls`, what both do, with the threads of a `team` or a `pool`
- `frame` and `findings`, what a call hands to compiled code; `compiled` and `entry`, compiling; `schedule`,
  the list of work
- `packed` for many rows and `streamed` for few, on `rows`, `tiles`, `bringing` and `careful`
- `visit`, which looks at every row's exact weights again, and its `reducers`, a function a statistic
- the vector code: `products`, `streaming`, `softmax`, `bias_and_mask`, `dropout`, `measuring`, `ledger`,
  `exponential`, `packing`
- what all of it stands on: `problem` and `desks`, what compiled code works on and in; `emission` and
  `memory`, its instructions; `host` and `geometry`, the processor and the sizes it asks for; `philox`,
  which weights dropout drops
- `probes`, what the processor could do at most

Nothing here but `geometry` and `philox`, which are numbers alone, is imported before the kernel is first
needed.
"""
