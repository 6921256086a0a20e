"""Listening along while an attached model runs: its attention calls, and the projections behind them."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from headwise.evidence import Evidence
from headwise.models.attachment import AttachedLayer
from headwise.models.attachment.interface import LISTENERS, Listener
from headwise.models.attachment.layer_call import LayerCall
from headwise.models.attachment.mask_reading import MaskReading


@dataclass
class HeardCall:
    """One attention call, or once its projection is found what is left of it where only one row is wanted.

    - call: None where only one row is wanted
    - output `[batch, num_heads, seq_len or 1, value_head_dim]`
    - projection, projected: the linear layer that reads the heads' outputs as they are, its path and what it
      makes of them, `[batch, seq_len or 1, d_model]`; None while none was found
    """

    call: LayerCall | None
    output: Tensor
    projection: nn.Module | None = None
    projection_name: str = ""
    projected: Tensor | None = None

    def outputs_at(self, position: int) -> Tensor:
        """Return the heads' outputs at a position, `[num_heads, value_head_dim]`."""
        return self.output[0, :, min(position, self.output.shape[2] - 1)]

    def projected_at(self, position: int) -> Tensor | None:
        """Return what the projection makes of them there, `[d_model]`; None where none was found."""
        return (
            None if self.projected is None else self.projected[0, min(position, self.projected.shape[1] - 1)]
        )

    def keep_only(self, position: int) -> None:
        """Let go of all but one row: on long texts all rows of all layers take more memory than the model."""
        self.call, self.output = None, self.output[:, :, [position]]
        if self.projected is not None:
            self.projected = self.projected[:, [position]]


class _Along:
    """Answers as the listener of a module does, and writes down what it answered."""

    def __init__(self, inner: Listener, heard: list[HeardCall]) -> None:
        self._inner = inner
        self._heard = heard

    def answer(self, module: nn.Module, call: LayerCall) -> tuple[Tensor, Evidence[Tensor] | None]:
        output, evidence = self._inner.answer(module, call)
        self._heard.append(HeardCall(call, output))
        return output, evidence

    def watches(self, module: nn.Module) -> bool:
        return self._inner.watches(module)

    def asks_for_attentions(self, module: nn.Module) -> bool:
        return self._inner.asks_for_attentions(module)

    def read_mask(self, mask: Tensor, sizes: tuple[int, ...]) -> MaskReading:
        return self._inner.read_mask(mask, sizes)


@contextmanager
def listening(
    model: PreTrainedModel, layers: tuple[AttachedLayer, ...], *, whole: AttachedLayer, position: int
) -> Iterator[list[HeardCall]]:
    """Write down the attention calls of an attached model in the order of `layers`; of all but one, a row."""
    place = layers.index(whole)
    heard: list[HeardCall] = []
    with ExitStack() as cleanup:
        for name in {layer.name for layer in layers}:
            cleanup.enter_context(_beside(model.get_submodule(name), heard))
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear | Conv1D):
                cleanup.callback(
                    module.register_forward_hook(_projection_watch(name, heard, place, position)).remove
                )
        yield heard


@contextmanager
def _beside(module: nn.Module, heard: list[HeardCall]) -> Iterator[None]:
    known = LISTENERS[module]
    inner = known()
    if inner is None:
        raise ValueError("the model is not attached")
    along = _Along(inner, heard)
    LISTENERS[module] = weakref.ref(along)
    try:
        yield
    finally:
        LISTENERS[module] = known


def _projection_watch(name: str, heard: list[HeardCall], whole: int, position: int) -> Any:
    """Return a hook that takes a linear layer for the output projection where it reads the heads' outputs.

    By its input and not by its name, which differs from family to family: one that gates, norms or reorders
    the heads' outputs first has none.
    """

    def watch(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        latest = heard[-1] if heard else None
        if latest is None or latest.projection is not None or not args or not torch.is_tensor(args[0]):
            return
        # [batch, seq_len, num_heads * value_head_dim]
        side_by_side = latest.output.transpose(1, 2).flatten(2)
        is_as_large = args[0].numel() == side_by_side.numel() and args[0].shape[-1] == side_by_side.shape[-1]
        if is_as_large and torch.equal(args[0].reshape(side_by_side.shape), side_by_side):
            latest.projection, latest.projection_name = module, name
            latest.projected = output.reshape(*side_by_side.shape[:2], -1)
            if len(heard) - 1 != whole:
                latest.keep_only(position)

    return watch
