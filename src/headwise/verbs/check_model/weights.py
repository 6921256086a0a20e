"""The matrices of single heads, as the proven projections hold them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headwise.models.attachment import AttachedLayer
from headwise.verbs.check_model.listening import Heard, weight_of
from headwise.verbs.check_model.result import Matrix
from headwise.verbs.check_model.sources import Source


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """The projections of one attention layer that could be examined.

    A module that serves several layers, as where a model shares one block among all, stands here once.
    """

    layer: AttachedLayer
    sources: Mapping[Matrix, Source]

    def count(self, matrix: Matrix) -> int:
        """Return how many heads of this matrix there are: of key and value those that differ in place."""
        return len(self._begins(matrix))

    def number(self, matrix: Matrix, head: int) -> int:
        """Return which one a query head reads."""
        if matrix in {"query", "output"}:
            return head
        source = self.sources[matrix]
        arrived = head // (self.layer.num_heads // len(source.begins))
        return self._begins(matrix).index(source.begins[arrived])

    def shape(self, matrix: Matrix) -> tuple[int, int]:
        """Return the shape of one head's matrix, as in `heads`."""
        weight = self._rows(matrix)
        return self.sources[matrix].width, weight.shape[1]

    def heads(self, matrix: Matrix) -> Tensor:
        """Return the weights of all heads in float32, `[heads, head_dim, width of the rows it maps]`.

        Of the output projection they are its slices, `[heads, value_head_dim, d_model]`.
        """
        source, rows, begins = self.sources[matrix], self._rows(matrix), self._begins(matrix)
        first, count, width = begins[0], len(begins), source.width
        if begins == tuple(range(first, first + count * width, width)):  # one after the other: no copy
            return rows[first : first + count * width].unflatten(0, (count, width)).float()
        return torch.stack([rows[begin : begin + width] for begin in begins]).float()

    def biases(self, matrix: Matrix) -> Tensor | None:
        """Return the biases of all heads in float32, `[heads, head_dim]`; the output's is no head's."""
        source = self.sources[matrix]
        bias = getattr(source.module, "bias", None)
        if matrix == "output" or bias is None:
            return None
        slices = [bias.detach()[begin : begin + source.width] for begin in self._begins(matrix)]
        return torch.stack(slices).float()

    def memory(self, matrix: Matrix) -> tuple[int, tuple[int, ...]]:
        """Return what is equal for two layers that hold the same parameter: where it lies, and which part."""
        source = self.sources[matrix]
        return _parameter(source).data_ptr(), source.begins

    def _rows(self, matrix: Matrix) -> Tensor:
        """Return the weight with the columns or rows that are heads first."""
        weight = weight_of(self.sources[matrix].module)
        if weight is None:
            raise ValueError("this projection holds no floats, and was to be left out")
        return weight.T if matrix == "output" else weight

    def _begins(self, matrix: Matrix) -> tuple[int, ...]:
        return tuple(sorted(set(self.sources[matrix].begins)))


def _parameter(source: Source) -> Tensor:
    weight: Any = source.module.weight
    return weight


def examinable(heard: Heard) -> tuple[LayerWeights, ...]:
    """Return the layers with what was found of their projections, each module once."""
    found: dict[str, LayerWeights] = {}
    for layer, call in zip(heard.layers, heard.calls, strict=True):
        sources = {
            matrix: source for matrix, source in call.sources.items() if weight_of(source.module) is not None
        }
        found.setdefault(layer.name, LayerWeights(layer, sources))
    return tuple(found.values())
