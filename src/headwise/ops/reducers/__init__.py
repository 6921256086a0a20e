"""One small reducer, or one function of a row, for each thing `observe` reports.

A reducer is shown the exact weights of one block of rows after the other and keeps only its own numbers. A
number that a row has on its own is a function in `measures` and a line in `Gathering`; whatever else there is
is a `Reducer`. `headwise.evidence` has the definitions.
"""

from headwise.ops.reducers.gathering import Gathering

__all__ = ["Gathering"]
