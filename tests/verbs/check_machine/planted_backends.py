"""Backends that a test plants: each asks plain attention in a line of its own, and does one thing wrong.

Child processes import this file by its name, so it imports nothing of the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from headwise.verbs.check_machine.backends import Backend, Form
from headwise.verbs.check_machine.case import Case
from headwise.verbs.libraries import CannotRunError

_SDPA = "torch.nn.functional.scaled_dot_product_attention"


class Plain(Backend):
    """torch's attention with the mask as a tensor; `call` is what subclasses spoil."""

    name: ClassVar[str] = "plain"
    label: ClassVar[str] = "plain"
    call: ClassVar[str] = _SDPA + "(q, k, v, attn_mask={mask})"

    def forms(self, case: Case) -> Iterator[Form]:
        if case.wants == "logsumexp":
            raise CannotRunError("returns no logsumexp")
        call = self.call.format(mask=f"({case.whole_mask()})" if case.has_mask else None)
        yield Form("", (*case.setup(), f"out = {call}"))


class ScaleForgotten(Plain):
    name: ClassVar[str] = "scale_forgotten"
    label: ClassVar[str] = "scale"
    call: ClassVar[str] = _SDPA + "(q, k, v, attn_mask={mask}, scale=1.0)"


class OneValueOff(Plain):
    """Off by little in one number, where there are 11 keys."""

    name: ClassVar[str] = "one_value_off"
    label: ClassVar[str] = "one off"
    call: ClassVar[str] = (
        Plain.call + ".index_put([torch.tensor(at) for at in (0, 1, 2, 3)], "
        "torch.tensor(0.001 * (k.shape[2] == 11)), accumulate=True)"
    )


class OtherShape(Plain):
    name: ClassVar[str] = "other_shape"
    label: ClassVar[str] = "shape"
    call: ClassVar[str] = _SDPA + "(q, k, v, attn_mask={mask}).transpose(1, 2)"


class Raising(Plain):
    name: ClassVar[str] = "raising"
    label: ClassVar[str] = "raising"
    refusals: ClassVar[tuple[type[Exception], ...]] = (NotImplementedError,)
    call: ClassVar[str] = "[][k.shape[2]]"


class Crashing(Plain):
    """Ends its process by a signal where there are no keys, as a division by zero does."""

    name: ClassVar[str] = "crashing"
    label: ClassVar[str] = "crash"
    call: ClassVar[str] = (
        "__import__('os').kill(__import__('os').getpid(), 8) if k.shape[2] == 0 else " + Plain.call
    )


class AlwaysCrashing(Plain):
    name: ClassVar[str] = "always_crashing"
    label: ClassVar[str] = "crash"
    call: ClassVar[str] = "__import__('os').kill(__import__('os').getpid(), 11)"


class Exiting(Plain):
    name: ClassVar[str] = "exiting"
    label: ClassVar[str] = "exit"
    call: ClassVar[str] = "__import__('os')._exit(3) if k.shape[2] == 5 else " + Plain.call


class Hanging(Plain):
    """Never answers where there are five keys."""

    name: ClassVar[str] = "hanging"
    label: ClassVar[str] = "hang"
    call: ClassVar[str] = "__import__('time').sleep(3600) if k.shape[2] == 5 else " + Plain.call


class Missing(Plain):
    name: ClassVar[str] = "missing"
    label: ClassVar[str] = "missing"
    libraries: ClassVar[dict[str, str]] = {"no_such_library": "No such library"}


class Unbuildable(Plain):
    """Cannot even be made in another process."""

    name: ClassVar[str] = "unbuildable"
    label: ClassVar[str] = "unbuilt"

    @property
    def home(self) -> str:
        return "no_such_module:Unbuildable"
