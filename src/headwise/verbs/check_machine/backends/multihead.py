"""torch.nn.MultiheadAttention, its projections set to the identity so that nothing but attention is left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from headwise.verbs.check_machine.backends.backend import Backend, Form, torch_gradients
from headwise.verbs.check_machine.backends.torch_sdpa import refuse_extras
from headwise.verbs.check_machine.case import Case
from headwise.verbs.libraries import CannotRunError


class MultiheadAttention(Backend):
    """The module with and without weights asked for, and its fast path where one tensor is given thrice."""

    name: ClassVar[str] = "multihead"
    label: ClassVar[str] = "MHA"

    def forms(self, case: Case) -> Iterator[Form]:
        """Yield `need_weights` either way, and evaluation without gradients.

        Raises:
            CannotRunError: the module has no form of the case.

        """
        _refuse(case)
        for need_weights in (False, True):
            yield _form(case, f"need_weights={need_weights}", need_weights=need_weights, fast=False)
        if case.self_attention:
            yield _form(case, "eval", need_weights=False, fast=True)


def _refuse(case: Case) -> None:
    refuse_extras(case)
    if case.is_grouped:
        raise CannotRunError("no grouped heads")
    if case.head_dim != case.value_head_dim:
        raise CannotRunError("values are as wide as keys")
    if case.infinite:
        raise CannotRunError("its projections make NaN of infinity")


def _form(case: Case, name: str, *, need_weights: bool, fast: bool) -> Form:
    """Return one call; the fast path is taken by a module in eval mode that has biases."""
    width, heads = case.num_heads * case.head_dim, case.num_heads
    weights = f'"in_proj_weight": torch.eye({width}).repeat(3, 1), "out_proj.weight": torch.eye({width})'
    made = f"torch.nn.MultiheadAttention({width}, {heads}, bias={fast}, batch_first=True)"
    given = [*_masks(case), f"need_weights={need_weights}"]
    shape = f"{heads}, {case.head_dim}"
    thrice = "x, x, x" if case.self_attention else "*(t.transpose(1, 2).flatten(2) for t in (q, k, v))"
    return Form(
        name,
        (
            *case.setup(),
            f"a = {made}" + ("" if case.dtype == "float32" else ".to(q.dtype)"),
            f"a.load_state_dict({{{weights}}}, strict=False)",
            *(("a.eval()", "torch.set_grad_enabled(False)") if fast else ()),
            *(("x = q.transpose(1, 2).flatten(2)",) if case.self_attention else ()),
            f"out = a({thrice}, {', '.join(given)})[0].unflatten(2, ({shape})).transpose(1, 2)",
            *torch_gradients(case),
        ),
    )


def _masks(case: Case) -> Iterator[str]:
    """Yield its masks, in which True hides: padding by itself, the rest for each head of each element."""
    keys = f"torch.arange({case.kv_len})"
    rest = case
    if case.bias is None and case.right_padded is not None:
        yield f"key_padding_mask={keys} >= torch.tensor({[*case.right_padded]})[:, None]"
        rest = case.without_padding()
    elif case.bias is None and case.left_padded is not None:
        first = [case.kv_len - real for real in case.left_padded]
        yield f"key_padding_mask={keys} < torch.tensor({first})[:, None]"
        rest = case.without_padding()
    if case.bias is not None:
        hidden = f".masked_fill(~({case.whole_mask()}), -torch.inf)" if case.has_mask else ""
        yield f"attn_mask=bias{hidden}.expand({case.full_shape}).flatten(0, 1)"
    elif rest.has_mask:
        yield f"attn_mask=~({rest.whole_mask()}).expand({case.full_shape}).flatten(0, 1)"
