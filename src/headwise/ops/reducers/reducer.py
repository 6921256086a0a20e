"""What a reducer is, and the one for whatever a row has on its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from torch import Tensor

from headwise.ops.joining import JoinedRows
from headwise.ops.rows import RowFacts

Measure = Callable[[RowFacts], Tensor]
"""Gives something of each row, `[batch, heads, rows, ...]`."""


class Reducer(ABC):
    """Takes in blocks of rows in order and gives fields of `Evidence`."""

    @abstractmethod
    def add(self, facts: RowFacts) -> None:
        """Take in the next block of rows."""

    @abstractmethod
    def fields(self) -> dict[str, Tensor]:
        """Return what was gathered from all rows."""


class PerRow(Reducer):
    """Anything that a row has on its own; the rows of all blocks are joined along `seq_len`."""

    def __init__(self, name: str, measure: Measure, seq_len: int) -> None:
        self._name = name
        self._measure = measure
        self._found = JoinedRows(seq_len)

    def add(self, facts: RowFacts) -> None:
        """Measure the block."""
        self._found.add(facts.rows, self._measure(facts))

    def fields(self) -> dict[str, Tensor]:
        """Return the one field."""
        return {self._name: self._found.whole()}
