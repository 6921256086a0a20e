"""Autograd of the torch operators: the backward pass is the second operator, and its own is the formula."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor
from torch._functorch.utils import enable_single_level_autograd_function

from headwise.masks import Sizes
from headwise.ops import formula, nonfinite
from headwise.ops.ordered_sums import summed_to
from headwise.ops.registered import (
    ATTENTION,
    ATTENTION_BACKWARD,
    LIBRARY,
    Terms,
    asked_for,
    compute,
    compute_backward,
)
from headwise.ops.watchers import watcher_of

_NUM_TERMS = len(Terms._fields)


class _Outline(NamedTuple):
    """What is left of terms without their tensors, which autograd wants one by one."""

    num_boolean: int
    structure: Sequence[int]
    scale: float
    softcap: float | None
    dropout: float

    @classmethod
    def of(cls, terms: Terms) -> _Outline:
        """Return the outline of terms."""
        return cls(len(terms.boolean), terms.structure, terms.scale, terms.softcap, terms.dropout)

    def filled(self, tensors: Sequence[Any]) -> Terms:
        """Return the terms with these tensors, in the order of `_flat`."""
        query, key, value, sinks, seed, *masks = tensors
        boolean, additive = masks[: self.num_boolean], masks[self.num_boolean :]
        return Terms(query, key, value, boolean, additive, sinks, seed, *self[1:])


def _flat(terms: Terms) -> tuple[Any, ...]:
    return terms.query, terms.key, terms.value, terms.sinks, terms.seed, *terms.boolean, *terms.additive


def _in_place(gradients: Sequence[Any], num_boolean: int) -> tuple[Any, ...]:
    """Return the gradients of query, key, value, sinks and biases where `_flat` has these tensors."""
    query, key, value, sinks, *biases = gradients
    return query, key, value, sinks, None, *(None,) * num_boolean, *biases


class _AtThisLevel(torch.autograd.Function):
    """A function for the level of autograd that is asking.

    torch.func enters the autograd of an operator once for each of its levels. `apply` would take the function
    through all of them again.
    """

    @classmethod
    def record(cls, *given: Any) -> Any:
        """Return what `apply` returns outside torch.func."""
        with enable_single_level_autograd_function():
            base: Any = super(torch.autograd.Function, cls)
            return base.apply(*given)


def _below_autograd(operator: Any, keyset: Any, *given: Any) -> Any:
    # Gradients are on for the levels of torch.func below this one; in a function torch has them off.
    with torch._C._AutoDispatchBelowAutograd():
        return operator.redispatch(keyset & torch._C._after_autograd_keyset, *given)


def _requires_grad(tensors: Sequence[Any]) -> bool:
    return torch.is_grad_enabled() and any(
        isinstance(each, Tensor) and each.requires_grad for each in tensors
    )


def _is_followed(grad_output: Tensor, grad_logsumexp: Tensor | None) -> bool:
    upstreams = [grad_output] if grad_logsumexp is None else [grad_output, grad_logsumexp]
    return watcher_of(upstreams) is not None or any(map(is_legacy_batchedtensor, upstreams))


class _Attention(_AtThisLevel):
    @staticmethod
    def forward(ctx: Any, keyset: Any, outline: _Outline, how: Sequence[Any], *tensors: Any) -> Any:
        terms = outline.filled(tensors)
        if keyset is None:
            found = compute(*terms, *how)
        else:
            with torch.enable_grad():
                found = _below_autograd(ATTENTION, keyset, *terms, *how)
        ctx.outline, ctx.is_direct = outline, keyset is None
        ctx.save_for_backward(*tensors, *found)
        ctx.mark_non_differentiable(found[2])
        ctx.set_materialize_grads(False)
        return found

    @staticmethod
    def backward(ctx: Any, *upstreams: Any) -> Any:
        *tensors, output, logsumexp, rows = ctx.saved_tensors
        grad_output, grad_logsumexp, _ = upstreams
        if grad_output is None:
            grad_output = output.new_zeros(()).expand_as(output)
        terms, num_boolean = ctx.outline.filled(tensors), ctx.outline.num_boolean
        needed = ctx.needs_input_grad[3:]
        wanted = [*needed[:4], *needed[5 + num_boolean :]]
        results = (output, logsumexp, rows, grad_output, grad_logsumexp)
        is_followed = torch.is_grad_enabled() or _is_followed(grad_output, grad_logsumexp)
        is_direct = ctx.is_direct and not is_followed
        found = iter((compute_backward if is_direct else ATTENTION_BACKWARD)(*terms, *results, wanted))
        gradients = [next(found) if is_wanted else None for is_wanted in wanted]
        if gradients[3] is not None and terms.sinks is not None and terms.sinks.shape[0] == 1:
            in_order, shape = is_direct and gradients[3].is_cpu, terms.sinks.shape
            gradients[3] = summed_to(gradients[3], shape) if in_order else gradients[3].sum(0, keepdim=True)
        return None, None, None, *_in_place(gradients, num_boolean)


class _Backward(_AtThisLevel):
    @staticmethod
    def forward(ctx: Any, keyset: Any, outline: _Outline, wanted: list[bool], *tensors: Any) -> Any:
        # tensors: output, logsumexp, rows, grad_output, grad_logsumexp and those of the terms
        with torch.enable_grad():
            terms = outline.filled(tensors[5:])
            found = _below_autograd(ATTENTION_BACKWARD, keyset, *terms, *tensors[:5], wanted)
        ctx.outline, ctx.wanted = outline, wanted
        ctx.save_for_backward(*tensors[3:])
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *upstreams: Any) -> Any:
        grad_output, grad_logsumexp, *tensors = ctx.saved_tensors
        terms, num_boolean = ctx.outline.filled(tensors), ctx.outline.num_boolean
        sizes, guarded = _plain_sizes(terms), not nonfinite.surely_finite(terms.call)
        given = (
            grad_output,
            grad_logsumexp,
            terms.query,
            terms.key,
            terms.value,
            terms.sinks,
            *terms.additive,
        )
        places = [place for place, tensor in enumerate(given) if tensor is not None]

        def differentiated(*variables: Tensor) -> tuple[Tensor, ...]:
            filled = dict(zip(places, variables, strict=True))
            of_logsumexp, *varied = (filled.get(place) for place in range(1, len(given)))
            call = ctx.outline.filled(_in_place_of(varied, tensors, num_boolean)).call
            call = replace(call, visibility=replace(call.visibility, sizes=sizes))
            asked = asked_for(ctx.wanted)
            found = formula.gradients(call, filled[0], of_logsumexp, asked=asked, guarded=guarded)
            return tuple(each for each in (*found[:4], *found.biases) if each is not None)

        pull: Any = torch.func.vjp(differentiated, *(given[place] for place in places))[1]
        gradients = dict(zip(places, pull(upstreams), strict=True))
        of_output, of_logsumexp, *others = (gradients.get(place) for place in range(len(given)))
        # The results of the forward pass are functions of the same tensors, and counted there.
        nothing = (None,) * 6
        return *nothing, of_output, of_logsumexp, *_in_place(others, num_boolean)


def _plain_sizes(terms: Terms) -> Sizes:
    """Return the sizes as numbers, if they are symbols: the formula makes its masks of them by NumPy."""
    batch, num_heads, seq_len, _ = terms.query.shape
    return Sizes(int(batch), int(num_heads), int(seq_len), int(terms.key.shape[2]))


def _in_place_of(varied: Sequence[Any], tensors: Sequence[Any], num_boolean: int) -> tuple[Any, ...]:
    """Return `tensors`, in the order of `_flat`, with what `_in_place` places put in their places."""
    fixed = _in_place(varied, num_boolean)
    return tuple(
        tensor if place in range(4, 5 + num_boolean) else fixed[place] for place, tensor in enumerate(tensors)
    )


def attend(terms: Terms, *how: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return what the operator returns, with its gradient, where nobody follows the call.

    It is the same function, forward and backward, without torch's way to it: 25 microseconds each.
    """
    found: tuple[Tensor, Tensor, Tensor] = _Attention.record(None, _Outline.of(terms), how, *_flat(terms))
    return found


def _attention(keyset: Any, *given: Any) -> Any:
    terms = Terms(*given[:_NUM_TERMS])
    tensors = _flat(terms)
    if _requires_grad(tensors):
        return _Attention.record(keyset, _Outline.of(terms), given[_NUM_TERMS:], *tensors)
    return _below_autograd(ATTENTION, keyset, *given)


def _attention_backward(keyset: Any, *given: Any) -> Any:
    terms, (*results, wanted) = Terms(*given[:_NUM_TERMS]), given[_NUM_TERMS:]
    tensors = (*results, *_flat(terms))
    if _requires_grad(tensors):
        return list(_Backward.record(keyset, _Outline.of(terms), wanted, *tensors))
    return _below_autograd(ATTENTION_BACKWARD, keyset, *given)


LIBRARY.impl("attention", _attention, "Autograd", with_keyset=True)
LIBRARY.impl("attention_backward", _attention_backward, "Autograd", with_keyset=True)
