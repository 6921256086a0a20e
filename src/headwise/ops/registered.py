"""The torch operators `headwise::attention` and `headwise::attention_backward`: schema, computation, fakes.

Whoever follows torch's operations sees these two. Their arguments are tensors, numbers and words, all of them
checked before (`arguments`); the structured part of a mask travels as integers (`structure`). Gates are not
among them: they are multiplied afterwards, by an operation of torch's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwise.masks import Sizes
from headwise.ops import (
    choice,
    formula,
    fused,
    kernel,
    kernel_gradient,
    nonfinite,
    ordered_sums,
    plain,
    structure,
)
from headwise.ops.arguments import Call
from headwise.ops.fitting import compute_dtype
from headwise.ops.results import AttentionResult, Softmaxed, Wanted
from headwise.ops.routes import DIRECT
from headwise.ops.visibility import Visibility

LIBRARY: Any = torch.library.Library("headwise", "DEF")  # type: ignore[no-untyped-call]  # torch leaves it so
_TERMS = (
    "Tensor query, Tensor key, Tensor value, Tensor[] boolean, Tensor[] additive, Tensor? sinks, "
    "Tensor? seed, SymInt[] structure, float scale, float? softcap, float dropout"
)
LIBRARY.define(
    f"attention({_TERMS}, str impl, bool need_logsumexp) -> (Tensor output, Tensor logsumexp, Tensor rows)"
)
LIBRARY.define(
    f"attention_backward({_TERMS}, Tensor output, Tensor logsumexp, Tensor rows, Tensor grad_output, "
    "Tensor? grad_logsumexp, bool[] wanted) -> Tensor[]"
)
ATTENTION = torch.ops.headwise.attention.default
ATTENTION_BACKWARD = torch.ops.headwise.attention_backward.default


class Terms(NamedTuple):
    """A call as the operators take it.

    - boolean, additive: of rank 4, sizes of 1 not expanded; sinks `[batch or 1, num_heads]`
    - structure: as `structure.encoded` gives it
    """

    query: Tensor
    key: Tensor
    value: Tensor
    boolean: list[Tensor]
    additive: list[Tensor]
    sinks: Tensor | None
    seed: Tensor | None
    structure: Sequence[int]
    scale: float
    softcap: float | None
    dropout: float

    @classmethod
    def of(cls, call: Call) -> Terms:
        """Return the terms of a call, its gates aside."""
        visibility = call.visibility
        return cls(
            call.query,
            call.key,
            call.value,
            list(visibility.boolean),
            list(visibility.additive),
            None if call.sinks is None else call.sinks[None],
            call.seed,
            structure.encoded(visibility.structured, visibility.sizes),
            call.scale,
            call.softcap,
            call.dropout,
        )

    @property
    def call(self) -> Call:
        """The call of these terms.

        Raises:
            ArgumentError: a structured mask does not fit the sizes.

        """
        sinks = self.sinks
        return Call(
            self.query,
            self.key,
            self.value,
            self._visibility(),
            self.scale,
            self.softcap,
            sinks[0] if sinks is not None and sinks.shape[0] == 1 else sinks,
            None,
            self.dropout,
            self.seed,
        )

    def _visibility(self) -> Visibility:
        batch, num_heads, seq_len, _ = self.query.shape
        sizes = Sizes(batch, num_heads, seq_len, self.key.shape[2])
        numbers = (*self.structure, batch, num_heads, seq_len, sizes.kv_len)
        # Symbols have no hash.
        settle = _settled if all(type(number) is int for number in numbers) else _settle
        found = settle(tuple(self.structure), sizes, self.query.device)
        if not self.boolean and not self.additive:
            return found
        return replace(found, boolean=tuple(self.boolean), additive=tuple(self.additive))


def _settle(numbers: tuple[int, ...], sizes: Sizes, device: torch.device) -> Visibility:
    found = Visibility(sizes, device, structure.decoded(numbers), (), ())
    found.check_fit()
    return found


_settled = lru_cache(maxsize=64)(_settle)
"""`_settle`, remembered for the layers and steps of a model."""


def compute(*given: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return what the operator `headwise::attention` returns."""
    *terms, impl, need_logsumexp = given
    call = Terms(*terms).call
    match choice.choose_on(DIRECT, call, impl=impl, need_logsumexp=need_logsumexp).path:
        case "kernel":
            return kernel.attend_for_gradient(call)
        case "fused":
            found = AttentionResult(fused.attend(call), _of_empty_rows(call))
        case _:
            found = plain.attend(call)
    return _laid_out(found.output, kernel.empty_output(call)), found.logsumexp, _kept_rows(call, 0)


def _fake_attention(*given: Any) -> tuple[Tensor, Tensor, Tensor]:
    *terms, impl, _ = given
    call = Terms(*terms).call
    by_kernel = impl != "torch" and not kernel.why_not(call)
    rows = _kept_rows(call, kernel.NUMBERS_KEPT if by_kernel else 0)
    return kernel.empty_output(call), _empty_rows(call), rows


def compute_backward(*given: Any) -> list[Tensor]:
    """Return what the operator `headwise::attention_backward` returns."""
    *terms, output, logsumexp, rows, grad_output, grad_logsumexp, wanted = given
    call, asked = Terms(*terms).call, asked_for(wanted)
    attended = Softmaxed(output, logsumexp, rows)
    if rows.shape[0]:
        found = _by_kernel(call, attended, grad_output, grad_logsumexp, asked)
    else:
        guarded = not nonfinite.surely_finite(call)
        found = formula.gradients(call, grad_output, grad_logsumexp, asked=asked, guarded=guarded)
    tensors = (call.query, call.key, call.value)
    laid_out = (
        None if gradient is None else _laid_out(gradient, _empty_gradient(like))
        for gradient, like in zip(found[:3], tensors, strict=True)
    )
    biases = (None if each is None else each.contiguous() for each in found.biases)
    return [gradient for gradient in (*laid_out, found.sinks, *biases) if gradient is not None]


def _by_kernel(
    call: Call, attended: Softmaxed, grad_output: Tensor, grad_logsumexp: Tensor | None, asked: formula.Asked
) -> formula.Found:
    wanted = Wanted(asked.query, asked.key, asked.value, any(asked.biases), asked.sinks)
    found = kernel_gradient.gradients(call, attended, grad_output, grad_logsumexp, wanted=wanted)
    # The kernel was given the sum of the biases, of which each has the same gradient, over its own sizes.
    biases = (
        ordered_sums.summed_to(found.bias, bias.shape).to(bias.dtype)
        if is_asked and found.bias is not None
        else None
        for bias, is_asked in zip(call.visibility.additive, asked.biases, strict=True)
    )
    return formula.Found(found.query, found.key, found.value, found.sinks, tuple(biases))


def _fake_backward(*given: Any) -> list[Tensor]:
    *terms, _, _, _, _, _, wanted = given
    query, key, value, _, additive, *_ = terms
    of_sinks = query.new_empty(query.shape[:2], dtype=compute_dtype(query.dtype))
    of_biases = (bias.new_empty(bias.shape) for bias in additive)
    everything = (*map(_empty_gradient, (query, key, value)), of_sinks, *of_biases)
    return [gradient for gradient, is_wanted in zip(everything, wanted, strict=True) if is_wanted]


def asked_for(wanted: Sequence[bool]) -> formula.Asked:
    """Return what is wanted, flat for the operator: query, key, value, sinks and every bias."""
    query, key, value, sinks, *biases = wanted
    return formula.Asked(query, key, value, sinks, tuple(biases))


def _of_empty_rows(call: Call) -> Tensor:
    """Return -inf for the rows that see no key, all that is read of the logsumexp that nobody needs."""
    found, visibility = _empty_rows(call).zero_(), call.visibility
    hidden = None if visibility.is_square_causal else visibility.hidden(slice(0, call.sizes.seq_len))
    return found if hidden is None else found.masked_fill_(hidden.all(-1), -torch.inf)


def _empty_rows(call: Call) -> Tensor:
    return call.query.new_empty(call.query.shape[:3], dtype=call.compute_dtype)


def _kept_rows(call: Call, count: int) -> Tensor:
    return call.query.new_empty((count, *call.query.shape[:3]), dtype=torch.float32)


def _empty_gradient(tensor: Tensor) -> Tensor:
    """Return memory laid out as the tensor is, or in order if its lines are not in one piece."""
    found = torch.empty_like(tensor)
    return found if found.stride(3) == 1 else tensor.new_empty(tensor.shape)


def _laid_out(result: Tensor, wished: Tensor) -> Tensor:
    """Return a result laid out as `wished`: whoever traces must know it without knowing who computes."""
    return result if result.stride() == wished.stride() else wished.copy_(result)


LIBRARY.impl("attention", compute, "CompositeExplicitAutograd")
LIBRARY.impl("attention_backward", compute_backward, "CompositeExplicitAutograd")
torch.library.register_fake("headwise::attention", _fake_attention, lib=LIBRARY)
torch.library.register_fake("headwise::attention_backward", _fake_backward, lib=LIBRARY)
