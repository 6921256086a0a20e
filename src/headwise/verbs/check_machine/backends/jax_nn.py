"""jax.nn.dot_product_attention on the CPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import ClassVar

from headwise.verbs.check_machine.backends.backend import Backend, Form, gradient_names
from headwise.verbs.check_machine.case import Case
from headwise.verbs.libraries import CannotRunError


class JaxNn(Backend):
    """The function JAX has for attention, its tensors in the layout it takes."""

    name: ClassVar[str] = "jax"
    label: ClassVar[str] = "JAX"
    libraries: ClassVar[dict[str, str]] = {"jax": "JAX"}

    def forms(self, case: Case) -> Iterator[Form]:
        """Yield JAX's own words for the mask, and the mask as a tensor.

        Raises:
            CannotRunError: the function has no form of the case.

        """
        if case.softcap is not None:
            raise CannotRunError("no softcap")
        if case.sinks:
            raise CannotRunError("no sinks")
        own = [*_own_words(case)]
        if own and case.left_padded is None and case.documents is None:
            masks = [*own, *(["mask=r(mask)"] if case.visible is not None else [])]
            yield _form(case, "own words", masks)
        if case.is_structured or not own:
            masks = [f"mask=r({case.whole_mask()})"] if case.has_mask else []
            yield _form(case, "mask tensor" if own else "", masks)

    def tidy(self) -> None:
        """Go back to 32 bits, JAX's own default."""
        super().tidy()
        sys.modules["jax"].config.update("jax_enable_x64", False)


def _own_words(case: Case) -> Iterator[str]:
    if case.causal:
        yield "is_causal=True"
    if case.window is not None:
        yield f"local_window_size=({case.window - 1}, 0)"
    if case.right_padded is not None:
        yield f"key_value_seq_lengths=jax.numpy.array({[*case.right_padded]})"


def _form(case: Case, name: str, masks: list[str]) -> Form:
    wide = "double" if case.dtype == "float64" else "float"
    given = [*masks, *(["return_residual=True"] if case.wants == "logsumexp" else [])]
    options = "".join(f", {argument}" for argument in given)
    bias = ", b" if case.bias is not None else ""
    return Form(
        name,
        (
            "import jax, numpy",
            'jax.config.update("jax_platforms", "cpu")',
            *(('jax.config.update("jax_enable_x64", True)',) if case.dtype == "float64" else ()),
            *case.setup(),
            "r = lambda x: jax.numpy.asarray(x.reshape((1,) * (4 - x.ndim) + x.shape).numpy())",
            f'a = lambda x: jax.numpy.asarray(x.detach().{wide}().numpy()).astype("{case.dtype}")',
            "t = lambda x: a(x.transpose(1, 2))",
            "u = lambda x: torch.from_numpy(numpy.array(x, dtype='float64'))",
            f"f = lambda q, k, v{bias}: jax.nn.dot_product_attention(q, k, v{bias}{options})",
            *_called(case),
        ),
    )


def _called(case: Case) -> Iterator[str]:
    given = "t(q), t(k), t(v)"
    if case.bias is not None:
        given += ", a(bias.reshape((1,) * (4 - bias.ndim) + bias.shape))"
    if case.wants == "logsumexp":
        yield f"y, l = f({given})"
        yield "out, logsumexp = u(y).transpose(1, 2), u(l).transpose(1, 2)"
    elif case.wants == "gradients":
        yield f"y, pull = jax.vjp(f, {given})"
        yield "out = u(y).transpose(1, 2)"
        yield "found = [u(x) for x in pull(t(up))]"
        gradients = ["found[0].transpose(1, 2)", "found[1].transpose(1, 2)", "found[2].transpose(1, 2)"]
        gradients += ["found[3].reshape(bias.shape)"] if case.bias_is_learned else []
        yield f"{', '.join(gradient_names(case))} = {', '.join(gradients)}"
    else:
        yield f"out = u(f({given})).transpose(1, 2)"
