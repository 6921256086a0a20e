"""headwise itself: its CPU kernel, and its way through torch's operations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from headwise.errors import UnsupportedError
from headwise.verbs.check_machine.backends.backend import Backend, Form, torch_gradients
from headwise.verbs.check_machine.case import Case


class _Headwise(Backend):
    """`headwise.attention` with one implementation; what it does not do it refuses in its own words."""

    impl: ClassVar[str]
    refusals: ClassVar[tuple[type[Exception], ...]] = (UnsupportedError,)

    def forms(self, case: Case) -> Iterator[Form]:
        """Yield mask objects and the equal tensor; a bias also as a float mask."""
        if case.is_structured:
            yield self._form(case, "mask objects", _objects(case))
            yield self._form(case, "mask tensor", case.whole_mask())
            return
        yield self._form(case, "", "mask" if case.has_mask else None)
        if case.bias is not None and not case.has_mask:
            yield self._form(case, "float mask", "bias", bias=None)

    def _form(self, case: Case, name: str, mask: str | None, bias: str | None = "bias") -> Form:
        given = {
            "mask": mask,
            "bias": bias if case.bias is not None else None,
            "softcap": case.softcap,
            "sinks": "sinks" if case.sinks else None,
            "impl": f'"{self.impl}"',
        }
        arguments = ", ".join(f"{name}={value}" for name, value in given.items() if value is not None)
        call = f"out = hw.attention(q, k, v, {arguments})"
        if case.wants == "logsumexp":
            call = f"out, logsumexp = hw.attention_with_logsumexp(q, k, v, {arguments})"
        return Form(name, ("import headwise as hw", *case.setup(), call, *torch_gradients(case)))


class HeadwiseCpu(_Headwise):
    """The kernel made for this very CPU."""

    name: ClassVar[str] = "headwise_cpu"
    label: ClassVar[str] = "hw cpu"
    impl: ClassVar[str] = "cpu"


class HeadwiseTorch(_Headwise):
    """Torch's fused kernel where it keeps headwise's conventions, plain torch operations elsewhere."""

    name: ClassVar[str] = "headwise_torch"
    label: ClassVar[str] = "hw torch"
    impl: ClassVar[str] = "torch"


def _objects(case: Case) -> str:
    parts = []
    if case.causal:
        parts.append("hw.Causal()")
    if case.window is not None:
        parts.append(f"hw.Window.of({case.window})")
    if case.right_padded is not None:
        parts.append(f"hw.Lengths({[*case.right_padded]})")
    if case.left_padded is not None:
        parts.append(f'hw.Lengths({[*case.left_padded]}, padding="left")')
    if case.documents is not None:
        parts.append(f"hw.Packed({[*case.documents]})")
    if case.visible is not None:
        parts.append("mask")
    return " & ".join(parts)
