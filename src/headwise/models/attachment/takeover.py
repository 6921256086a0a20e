"""Taking a model over from transformers and giving it back exactly as it was found."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from headwise.errors import ArgumentError
from headwise.models.attachment import interface
from headwise.models.attachment.recording import Recorder
from headwise.models.attachment.switch import Implementations

_REGISTRIES = threading.RLock()  # re-entrant: a forgotten attachment may be released while another is made
_ATTACHED: set[int] = set()


def take_over(owner: object, model: PreTrainedModel, recorder: Recorder) -> weakref.finalize[Any, Any]:
    """Let `recorder` answer for `model`; return what undoes it, also when the attachment is forgotten."""
    modules = list(model.modules())
    with _REGISTRIES:
        taken = [type(module).__name__ for module in modules if module in interface.LISTENERS]
        if taken:
            raise ArgumentError(
                f"{type(model).__name__} is attached already ({len(taken)} of its modules are); use that "
                "attachment, or detach() it first"
            )
        found = recorder.implementations
        if interface.NAME in found.found():
            raise ArgumentError(
                f"{type(model).__name__} shares a config object with an attached model, or is a copy made "
                "while attached; detach() that one first, or give this one a config of its own"
            )
        hooks = [
            model.register_forward_pre_hook(recorder.begin, with_kwargs=True),
            model.register_forward_hook(recorder.end, always_call=True),
        ]
        interface.register()
        _ATTACHED.add(id(recorder))
        for module in modules:
            interface.LISTENERS[module] = weakref.ref(recorder)
    release = weakref.finalize(owner, _give_back, id(recorder), weakref.WeakSet(modules), found, hooks)
    release.atexit = False
    return release


def _give_back(
    recorder: int,
    modules: weakref.WeakSet[nn.Module],
    found: Implementations,
    hooks: Sequence[RemovableHandle],
) -> None:
    with _REGISTRIES:
        found.restore()
        for hook in hooks:
            hook.remove()
        for module in modules:
            interface.LISTENERS.pop(module, None)
        _ATTACHED.discard(recorder)
        if not _ATTACHED:
            interface.unregister()
