"""What of torch follows the operations of a call: a tracer, a transform, a mode, a class of tensors.

The kernel reads and writes memory by itself. Whoever records, counts or differentiates operations would take
its result for a constant, and no error would tell.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch._C import _functorch as functorch
from torch.autograd import forward_ad
from torch.nn import Parameter


def watcher_of(tensors: Sequence[Tensor]) -> str | None:
    """Return what follows the operations on these tensors, or None."""
    return _watcher_of_all() or _watcher_of_tensors(tensors)


def _watcher_of_all() -> str | None:
    if torch.compiler.is_compiling():
        return "torch.compile or torch.export is tracing"
    if torch._C._is_tracing():
        return "torch.jit.trace is tracing"
    if torch._C._len_torch_dispatch_stack():
        return "a torch dispatch mode is active, such as a tracer or a counter of FLOPs"
    if forward_ad._current_level >= 0:
        return "forward-mode derivatives are being taken"
    return None


def _watcher_of_tensors(tensors: Sequence[Tensor]) -> str | None:
    for tensor in tensors:
        if type(tensor) is not Tensor and type(tensor) is not Parameter:
            return f"an input is a {type(tensor).__name__}, a class of tensors of its own"
    # The question by tensor costs more than all the others; outside a transform it need not be asked.
    transforming = functorch.peek_interpreter_stack() is not None
    if transforming and any(map(functorch.is_functorch_wrapped_tensor, tensors)):
        return "a transform of torch.func is at work"
    return None
