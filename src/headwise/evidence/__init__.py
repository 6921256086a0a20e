"""What to report about each head (`Collect`) and what was found (`Evidence`).

This package holds names and definitions only; whatever computes them fills the same fields. One statistic has
one definition, here, and every table, page and JSON document quotes `STATISTICS`.

Definitions, for one row (one query) with weights w over its visible keys, key positions j, and the query's
own position p = i + (kv_len - seq_len), so that the last query stands at the last key:

- entropy: -sum w log w, in nats
- normalised_entropy: entropy / log n, n the number of keys that the row sees; 0 where n is 1
- largest_weight, largest_key: the largest w and its key, the first such key where several are equal; -1 is
  the key of a row whose weights are NaN or that sees none
- first_token: w at the first key that any row of that batch element sees, or at the key that the caller
  names as the first, and 0 where the caller says that it is no longer among the keys
- previous_token: w at key p - 1, for rows where p >= 1 and that key is visible to the row
- self_token: w at key p, for rows where p >= 0
- mean_distance: sum w |p - j|, in tokens
- local: sum of w over the keys with |p - j| <= local_window, the row's own included
- sink: what a learned sink took, exp(sink - logsumexp); it and the row's w sum to one
- at_offsets: w at key p - k for each offset k, for rows where that key exists and is visible to the row; the
  previous token is offset 1
- divergence: sum over the keys of (a log(a / m) + b log(b / m)) / 2, m = (a + b) / 2, of the weights a and b
  of two heads in one row, in nats: the Jensen-Shannon divergence, from 0 for equal rows to log 2 for rows
  that share no key. What learned sinks took counts as one more key.

A row that sees no key has none of these numbers (NaN); a row of which a comparison needs two, neither. The
weights are those before dropout and before head gates. With a learned sink they sum to less than one, and
nothing is rescaled: entropy and distance are sums over the keys, whatever the sink took.

A head's number is the mean over the rows that have one: rows that see no key have none, and rows before
the second visible key have no previous token. `Evidence.per_head` takes that mean, and leaves out the rows
that its caller calls padding.
"""

from headwise.evidence.collect import Collect
from headwise.evidence.found import Evidence
from headwise.evidence.statistics import OTHER_STATISTICS, STATISTICS, Statistic

__all__ = ["OTHER_STATISTICS", "STATISTICS", "Collect", "Evidence", "Statistic"]
