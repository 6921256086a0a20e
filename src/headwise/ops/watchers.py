"""What of torch follows the operations of a call: a tracer, a transform, a mode, a class of tensors.

The kernel reads and writes memory by itself, and would escape whoever records, counts or differentiates.
Most of them know operators: they are shown `headwise::attention` instead. The others must be shown every
operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C import _functorch as functorch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.autograd import forward_ad
from torch.nn import Parameter


class Watcher(NamedTuple):
    """Who follows, in words, and whether an operator of headwise's own is enough for it."""

    text: str
    knows_operators: bool


_FORWARD_MODE = Watcher("forward-mode derivatives are being taken", knows_operators=False)
_COMPILER = Watcher("torch.compile or torch.export is tracing", knows_operators=True)
_JIT = Watcher("torch.jit.trace is tracing", knows_operators=False)
_MODE = Watcher(
    "a torch dispatch mode is active, such as a tracer or a counter of FLOPs", knows_operators=True
)
_META = Watcher("the tensors hold no numbers", knows_operators=True)
_TRANSFORM = Watcher("a transform of torch.func is at work", knows_operators=True)

_OLDER_MAP = Watcher("torch's older map (is_grads_batched) is at work", knows_operators=True)
_KEY_OF_OLDER_MAP: Any = torch._C._parse_dispatch_key("VmapMode")  # a name would be looked up at each call

_PLAIN_CLASSES = (Tensor, Parameter)
_OF_TRACERS = (FakeTensor, FunctionalTensor)


def watcher_of(tensors: Sequence[Tensor]) -> Watcher | None:
    """Return what follows the operations on these tensors, or None."""
    return _watcher_of_all() or _watcher_of_tensors(tensors)


def _watcher_of_all() -> Watcher | None:
    if forward_ad._current_level >= 0:
        return _FORWARD_MODE
    if torch.compiler.is_compiling():
        return _COMPILER
    if torch._C._is_tracing():
        return _JIT
    if torch._C._len_torch_dispatch_stack():
        return _MODE
    return None


def _watcher_of_tensors(tensors: Sequence[Tensor]) -> Watcher | None:
    of_tracer = False
    for tensor in tensors:
        if type(tensor) not in _PLAIN_CLASSES:
            if type(tensor) not in _OF_TRACERS:
                text = f"an input is a {type(tensor).__name__}, a class of tensors of its own"
                return Watcher(text, knows_operators=False)
            of_tracer = True
    if of_tracer or tensors[0].is_meta:
        return _META
    # The question by tensor costs more than all the others; outside a transform it need not be asked.
    transforming = functorch.peek_interpreter_stack() is not None
    if transforming and any(map(functorch.is_functorch_wrapped_tensor, tensors)):
        return _TRANSFORM
    # What a checkpoint computes again, while upstreams are mapped, is not mapped itself.
    mapping = torch._C._dispatch_tls_is_dispatch_key_included(_KEY_OF_OLDER_MAP)
    if mapping and any(map(functorch.is_legacy_batchedtensor, tensors)):
        return _OLDER_MAP
    return None
