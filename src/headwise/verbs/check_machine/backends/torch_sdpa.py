"""torch.nn.functional.scaled_dot_product_attention: its fused kernel, and its math."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from headwise.verbs.check_machine.backends.backend import Backend, Form, torch_gradients
from headwise.verbs.check_machine.case import Case
from headwise.verbs.libraries import CannotRunError


class _TorchSdpa(Backend):
    kernel: ClassVar[str]

    def forms(self, case: Case) -> Iterator[Form]:
        """Yield the flag for causal attention, and the mask as a tensor.

        Raises:
            CannotRunError: the function has no argument for what is asked.

        """
        refuse_extras(case)
        if case.is_only_causal:
            yield self._form(case, "is_causal", "is_causal=True")
        if case.bias is not None:
            mask = f"bias.masked_fill(~({case.whole_mask()}), -torch.inf)" if case.has_mask else "bias"
            yield self._form(case, "", f"attn_mask={mask}")
        elif case.has_mask:
            yield self._form(case, "mask tensor", f"attn_mask={case.whole_mask()}")
        else:
            yield self._form(case, "", None)

    def _form(self, case: Case, name: str, argument: str | None) -> Form:
        given = [argument] if argument else []
        if case.is_grouped:
            given.append("enable_gqa=True")
        sdpa = "torch.nn.functional.scaled_dot_product_attention"
        call = f"out = sdpa_kernel(SDPBackend.{self.kernel})({sdpa})({', '.join(['q, k, v', *given])})"
        imported = "from torch.nn.attention import SDPBackend, sdpa_kernel"
        return Form(name, (imported, *case.setup(), call, *torch_gradients(case)))


class TorchFlash(_TorchSdpa):
    """The fused kernel, and nothing else if it refuses."""

    name: ClassVar[str] = "torch_flash"
    label: ClassVar[str] = "flash"
    kernel: ClassVar[str] = "FLASH_ATTENTION"


class TorchMath(_TorchSdpa):
    """The plain operations."""

    name: ClassVar[str] = "torch_math"
    label: ClassVar[str] = "math"
    kernel: ClassVar[str] = "MATH"


def refuse_extras(case: Case) -> None:
    """Refuse what torch's attention has no argument for.

    Raises:
        CannotRunError: the case has it.

    """
    if case.softcap is not None:
        raise CannotRunError("no softcap")
    if case.sinks:
        raise CannotRunError("no sinks")
    if case.wants == "logsumexp":
        raise CannotRunError("returns no logsumexp")
