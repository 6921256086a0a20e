"""Answering the attention calls of one model: evidence, ablations, and which layer each call belongs to."""

from __future__ import annotations

import inspect
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from torch import Tensor, nn
from transformers import PreTrainedModel

from headwise import masks
from headwise.errors import UnsupportedError
from headwise.evidence import Collect, Evidence
from headwise.models.attachment.ablation import Ablations
from headwise.models.attachment.cache_watch import cache_among, cached_tokens
from headwise.models.attachment.discover import AttachedLayer, Trace
from headwise.models.attachment.interface import NAME
from headwise.models.attachment.layer_call import LayerCall
from headwise.models.attachment.mask_reading import MaskMemory, MaskReading, read
from headwise.models.attachment.picture import Picture
from headwise.models.attachment.positions import first_tokens, positions_of
from headwise.models.attachment.switch import Implementations


class _Forward(threading.local):
    """What one thread's forward through the model has come to."""

    def __init__(self) -> None:
        self.running = False
        self.calls: defaultdict[nn.Module, int] = defaultdict(int)
        self.picture = Picture({})
        self.asks_for_attentions = False
        self.positions: Tensor | None = None
        self.capture: tuple[AttachedLayer, list[LayerOutput]] | None = None
        self.masks = MaskMemory()


LayerOutput = tuple[Tensor, LayerCall]
"""A layer's output, `[batch, num_heads, seq_len, value_head_dim]`, and the call that gave it."""


class Recorder:
    """Answers for the layers of one model.

    Evidence and counts are kept per thread, so that two threads may run one attached model; what to collect
    and which heads are off are the model's, for all threads.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.implementations = Implementations(model)
        self.ablations = Ablations()
        self.collect: dict[AttachedLayer, Collect] = {}
        self._family = type(model).__name__
        self._signature = inspect.signature(model.forward)
        self._seats: defaultdict[nn.Module, list[AttachedLayer]] = defaultdict(list)
        self._forward = _Forward()
        self._trace: Trace | None = None

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise UnsupportedError(
            f"{self._family} is attached to headwise, and copying or pickling it would take the hooks along; "
            "detach() it first"
        )

    @property
    def picture(self) -> Picture:
        """What the latest text in this thread showed."""
        return self._forward.picture

    def seat(self, module: nn.Module, layer: AttachedLayer) -> None:
        """Say that the next call of `module` within a forward is `layer`."""
        self._seats[module].append(layer)

    @contextmanager
    def tracing(self, trace: Trace) -> Iterator[None]:
        """Only compute, and let `trace` write down who called."""
        self._trace = trace
        try:
            with trace.watching():
                yield
        finally:
            self._trace = None

    @contextmanager
    def capturing(self, layer: AttachedLayer) -> Iterator[list[LayerOutput]]:
        """Collect the outputs of one layer, with every head on and no evidence touched."""
        found: list[LayerOutput] = []
        self._forward.capture = (layer, found)
        try:
            yield found
        finally:
            self._forward.capture = None

    def answer(self, module: nn.Module, call: LayerCall) -> tuple[Tensor, Evidence[Tensor] | None]:
        """Return the output of every head of one layer, and the evidence of this call where it is watched."""
        if self._trace is not None:
            with self._trace.answering(module, call):
                return call.attend(None), None
        forward, layer = self._forward, self._take_seat(module)
        if forward.capture is not None:
            output = call.attend(None)
            if forward.capture[0] == layer:
                forward.capture[1].append((output.detach(), call))
            return output, None
        if not self.collect and not self.ablations:  # the way of nearly every call: no question by layer
            return call.attend(None), None
        if not forward.running and forward.picture.collect is not self.collect:
            forward.picture = Picture(self.collect)
        gates, picture = self.ablations.gates(layer, call.query), forward.picture
        if layer not in picture.collect:
            return self.ablations.fill(layer, call.attend(gates), self._positions(layer)), None
        output, evidence = picture.observe(layer, call, gates, in_forward=forward.running)
        return self.ablations.fill(layer, output, self._positions(layer)), evidence

    def watches(self, module: nn.Module) -> bool:
        """Return whether evidence of a layer is collected."""
        return any(seat in self.collect for seat in self._seats.get(module, ()))

    def asks_for_attentions(self, module: nn.Module) -> bool:
        """Return whether the forward in progress has to give the attentions of a layer."""
        return self._forward.asks_for_attentions

    def read_mask(self, mask: Tensor, sizes: tuple[int, ...]) -> MaskReading:
        """Return what a mask says on a problem of these sizes; the layers of one forward share it."""
        forward = self._forward
        # Outside a forward nothing says when to let go of the mask.
        return forward.masks.read(mask, sizes) if forward.running else read(mask, masks.Sizes(*sizes))

    def begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Start a forward of the model: forget the one before, unless it goes on with the same text.

        Raises:
            UnsupportedError: the model was switched to another attention meanwhile.

        """
        switched = self.implementations.now() - {NAME}
        if switched and self._seats:
            raise UnsupportedError(
                f"{self._family} was switched to {', '.join(map(str, switched))} attention while "
                "attached, so nothing would be recorded and no head ablated; detach() it first"
            )
        forward = self._forward
        forward.running = True
        forward.asks_for_attentions = bool(kwargs.get("output_attentions"))
        forward.calls.clear()
        forward.masks.forget()
        forward.positions = None
        if forward.capture is None:
            self._begin_picture(args, kwargs)
            if self.ablations.needs_positions():
                forward.positions = positions_of(self._by_name(args, kwargs))

    def end(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """End a forward of the model, also one that failed."""
        forward = self._forward
        forward.running = forward.asks_for_attentions = False
        forward.calls.clear()
        forward.masks.forget()
        forward.positions = None
        if forward.capture is None and forward.picture.collect:
            forward.picture.end(output)

    def _begin_picture(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Go on with the picture of this thread, or start one."""
        forward = self._forward
        if not self.collect:
            forward.picture = Picture(self.collect)
            return
        cache = cache_among([*args, *kwargs.values()])
        if forward.picture.collect is self.collect and forward.picture.goes_on_with(cache):
            forward.picture.begin(cache)
            return
        cached = cached_tokens(cache)
        first_token = first_tokens(self._by_name(args, kwargs), cached) if cached else None
        forward.picture = Picture(self.collect, cache, first_token)

    def _by_name(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of the model's forward by name."""
        bound = self._signature.bind_partial(*args, **kwargs).arguments
        return {**bound, **bound.get("kwargs", {})}

    def _positions(self, layer: AttachedLayer) -> Tensor | None:
        """Return where the rows of this forward stand in their texts; None where it reads no text."""
        if not self._forward.running and self.ablations.resamples(layer):
            raise UnsupportedError(
                f"{layer.name} runs outside a forward of the whole {self._family} (a part run by itself, or "
                "gradient checkpointing computing it again), where the places of its rows are not known; run "
                'the whole model without checkpointing, or ablate with how="mean" or "zero"'
            )
        return self._forward.positions

    def _take_seat(self, module: nn.Module) -> AttachedLayer:
        """Return which layer this call is: a module that serves several layers is called once for each."""
        seats = self._seats.get(module)
        if not seats:
            raise UnsupportedError(
                f"{type(module).__name__} attends in {self._family} but did not run on the probe, so nothing "
                "is proven of it; pass attach(model, probe={...}) inputs that reach it"
            )
        taken = self._forward.calls[module]
        # Outside a forward of the whole model, as when generate runs an encoder, there is no count to hold.
        if self._forward.running and taken >= len(seats):
            raise UnsupportedError(
                f"{seats[-1].name} attends {taken + 1} times in one forward and {len(seats)} times on the "
                "probe; pass attach(model, probe={...}) inputs like those you run"
            )
        self._forward.calls[module] += 1
        return seats[taken % len(seats)]
