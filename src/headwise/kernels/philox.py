"""Which weights dropout drops: found by counting, so that whoever asks, in whatever order, is told the same.

Philox 4x32-10 makes four random words of 32 bits from a counter of four words and a key of two. The rule,
which vector code (`dropout`) and plain torch (`headwise.ops.dropout`) both follow:

- counter: (key position // 4, query position, batch index * num_heads + query head, 0)
- key: the low and the high half of the 64-bit seed
- the weight of a key is decided by word `key position % 4`: it is dropped if the word, unsigned, lies below
  `threshold_of(dropout)`, and kept otherwise
- a dropped weight becomes 0, a kept one is multiplied by `1 / (1 - dropout)`

So decisions hang on the place in the batch, which nothing else in the kernel does, but not on threads, tiles,
masks or the number of KV heads. Dropout comes after the softmax, whose denominator it leaves alone. A dropped
key is still seen: a value there that is NaN or infinite counts, as under a weight too small for float32.

Source: Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3.
"""

from __future__ import annotations

WORDS = 4
"""How many random words a counter makes, each for one key."""

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
"""What the first and the third word of the counter are multiplied by in each round."""

KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
"""What is added to the words of the key from one round to the next."""

_ALL_WORDS = 2**32


def threshold_of(dropout: float) -> int:
    """Return below which word a weight is dropped; at least one word in 2^32 keeps its weight."""
    return min(round(dropout * _ALL_WORDS), _ALL_WORDS - 1)
