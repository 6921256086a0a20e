"""Hearing every call that a model makes of its own attention function, whichever one that is.

`attach` would put headwise's attention in its place; here the model keeps its own, masks included, and what
each layer handed over and got back is passed on.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from headwise import masks
from headwise.errors import UnsupportedError
from headwise.evidence import Evidence
from headwise.models.attachment.interface import LISTENERS, attention_function
from headwise.models.attachment.layer_call import LayerCall
from headwise.models.attachment.mask_reading import MaskReading, read

Attention = Callable[..., Any]
OnCall = Callable[[nn.Module, LayerCall, Callable[[], Any]], Any]
"""Is told of a layer, what it hands over, and how its own attention is run; returns what that gave."""

_LOOKED_UP = "get_interface"
_LOOKING_UP = threading.RLock()  # transformers has one table of attention functions for all models


@contextmanager
def hearing_calls(model: nn.Module, on_call: OnCall) -> Iterator[None]:
    """Let `on_call` answer every attention call of `model`; other models go on as ever."""
    modules = set(model.modules())
    table = vars(ALL_ATTENTION_FUNCTIONS)
    with _LOOKING_UP:
        look_up, before = ALL_ATTENTION_FUNCTIONS.get_interface, table.get(_LOOKED_UP)

        def looked_up(*args: Any, **kwargs: Any) -> Attention:
            own = look_up(*args, **kwargs)

            def heard(module: nn.Module, *given: Any, **options: Any) -> Any:
                if module not in modules:
                    return own(module, *given, **options)
                call = read_call(module, *given, **options)
                return on_call(module, call, lambda: own(module, *given, **options))

            return heard

        table[_LOOKED_UP] = looked_up
        try:
            yield
        finally:
            if before is None:
                del table[_LOOKED_UP]
            else:
                table[_LOOKED_UP] = before


def read_call(module: nn.Module, *given: Any, **options: Any) -> LayerCall:
    """Return what a layer hands to an attention function in headwise's terms, as `attach` reads it.

    Raises:
        UnsupportedError: it asks for what headwise does not implement, or hands over no tensor as a mask.

    """
    mask = given[3] if len(given) > 3 else options.get("attention_mask")
    if mask is not None and not isinstance(mask, Tensor):
        raise UnsupportedError(
            f"{type(module).__name__} hands a {type(mask).__name__} to its attention as a mask, which only "
            'that attention can read; load the model with attn_implementation="eager" or "sdpa"'
        )
    reader = _Reader()
    LISTENERS[module] = weakref.ref(reader)
    try:
        attention_function(module, *given, **options)
    finally:
        LISTENERS.pop(module, None)
    return reader.call


class _Reader:
    """Answers in place of an attachment, only to learn what is asked."""

    call: LayerCall

    def answer(self, module: nn.Module, call: LayerCall) -> tuple[Tensor, Evidence[Tensor] | None]:
        # An attention function may write into what it is given, so that what it was given is kept apart.
        query, key, value = (tensor.detach().clone() for tensor in (call.query, call.key, call.value))
        self.call = call._replace(query=query, key=key, value=value)
        return torch.empty(0).expand(1, 1, 0, 0), None

    def watches(self, module: nn.Module) -> bool:
        return True

    def asks_for_attentions(self, module: nn.Module) -> bool:
        return False

    def read_mask(self, mask: Tensor, sizes: tuple[int, ...]) -> MaskReading:
        return read(mask, masks.Sizes(*sizes))
