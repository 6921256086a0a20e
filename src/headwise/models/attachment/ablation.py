"""Switching heads off inside the attention call, on their outputs, before the output projection mixes them.

Three things can stand in a head's place: nothing, its mean output over other texts, or its output on another
text. Nothing is the simplest, and the furthest from what the model was trained on.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.errors import ArgumentError
from headwise.models.attachment.discover import AttachedLayer


@dataclass(frozen=True)
class Zero:
    """The head gives nothing."""


@dataclass(frozen=True)
class Mean:
    """The head gives the same vector `[value_head_dim]` at every position."""

    vector: Tensor


@dataclass(frozen=True)
class Resample:
    """The head gives, at each position, what it gave there on another text: `[length, value_head_dim]`."""

    table: Tensor


StandIn = Zero | Mean | Resample


class Ablations:
    """Which heads are switched off, and what stands in their place."""

    def __init__(self) -> None:
        self._of: dict[AttachedLayer, dict[int, StandIn]] = {}

    def __bool__(self) -> bool:
        """Return whether any head was switched off since all were switched on."""
        return bool(self._of)

    def put(self, layer: AttachedLayer, heads: dict[int, StandIn]) -> None:
        """Switch heads of a layer off."""
        self._of[layer] = {**self._of.get(layer, {}), **heads}

    def take(self, layer: AttachedLayer, heads: range) -> None:
        """Switch heads of a layer on again.

        Raises:
            ArgumentError: one of them is not switched off.

        """
        off = self._of.get(layer, {})
        for head in heads:
            if head not in off:
                listed = ", ".join(map(str, sorted(off))) or "none"
                raise ArgumentError(
                    f"head {head} of layer {layer.layer} ({layer.name}) is not ablated; "
                    f"ablated there: {listed}"
                )
        self._of[layer] = {head: baseline for head, baseline in off.items() if head not in heads}

    def clear(self) -> None:
        """Switch all heads on again."""
        self._of = {}

    def resamples(self, layer: AttachedLayer) -> bool:
        """Return whether a head of the layer is replaced by another text's, position by position."""
        return any(isinstance(stand_in, Resample) for stand_in in self._of.get(layer, {}).values())

    def needs_positions(self) -> bool:
        """Return whether any layer resamples."""
        return any(map(self.resamples, self._of))

    def gates(self, layer: AttachedLayer, like: Tensor) -> Tensor | None:
        """Return `[num_heads]`, 0 for every head that is switched off, or None where none is."""
        off = list(self._of.get(layer, ()))
        if not off:
            return None
        gates = torch.ones(layer.num_heads, device=like.device)
        gates[off] = 0.0
        return gates

    def fill(self, layer: AttachedLayer, output: Tensor, positions: Tensor | None) -> Tensor:
        """Return `output`, `[batch, num_heads, seq_len, value_head_dim]`, with the stand-ins in it."""
        stand_ins = {
            head: each for head, each in self._of.get(layer, {}).items() if not isinstance(each, Zero)
        }
        if not stand_ins:
            return output
        filled = output.clone()
        for head, baseline in stand_ins.items():
            rows = (
                baseline.vector
                if isinstance(baseline, Mean)
                else _look_up(baseline, layer, positions, output)
            )
            filled[:, head] = rows.to(output.device, output.dtype)
        return filled


def _look_up(baseline: Resample, layer: AttachedLayer, positions: Tensor | None, output: Tensor) -> Tensor:
    batch, _, seq_len, _ = output.shape
    if positions is None:
        positions = torch.arange(seq_len)[None]
    if positions.shape[1] != seq_len:
        raise ArgumentError(
            f"layer {layer.layer} ({layer.name}) reads {seq_len} rows and the text has {positions.shape[1]} "
            'positions; how="resample" needs one position per row; use "mean" or "zero"'
        )
    length, furthest = baseline.table.shape[0], int(positions.max())
    if furthest >= length:
        raise ArgumentError(
            f"the baseline of layer {layer.layer} has {length} positions and this input reaches position "
            f'{furthest}, counted from 0; give how="resample" a baseline of at least {furthest + 1} tokens'
        )
    return baseline.table[positions.to(baseline.table.device)].expand(batch, -1, -1)
