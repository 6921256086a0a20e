"""Small trial calls: which of several ways to ask a callable it can be asked in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor

from headwise.errors import SubjectError
from headwise.verbs.check.asking import Answer, Form, Inputs, Role
from headwise.verbs.check.subject.asker import AXES, Asker
from headwise.verbs.check.subject.masks import FullMask
from headwise.verbs.check.subject.signature import is_required

BATCH, SEQ_LEN, KV_LEN = 3, 5, 13


@dataclass(frozen=True, eq=False)
class Tried:
    """A way in which a callable answered.

    - axes: the order in which it did
    - lengths_may_differ: whether it was given more keys than queries
    """

    asker: Asker
    axes: str
    lengths_may_differ: bool

    @property
    def kv_len(self) -> int:
        """How many keys it was given."""
        return KV_LEN if self.lengths_may_differ else SEQ_LEN


def first_that_answers(askers: Callable[[], Iterator[Asker]], *, axes: str | None) -> Tried:
    """Return the first way in which a callable answers; with lengths that differ rather than without.

    Args:
        askers: makes the ways, the most telling first and the plainest last.
        axes: the order of axes that it states; None to try both.

    Raises:
        SubjectError: there is none; what is said is of the plainest way of the likeliest form.

    """
    likeliest = next(askers())
    refused: dict[bool, SubjectError] = {}
    has_keys = Role.KEY in likeliest.caller.parameters.roles
    for kv_len in (KV_LEN, SEQ_LEN) if has_keys else (SEQ_LEN,):
        for asker in askers():
            inputs = trial_inputs(asker, kv_len=kv_len)
            for order in [each for each in AXES[asker.way.form] if axes in {None, each}]:
                try:
                    answering = _answering(asker, inputs, order)
                except SubjectError as error:
                    # The last of the likeliest kind of way is the plainest.
                    is_likely = _kind(asker) == _kind(likeliest) and order in {axes, AXES[asker.way.form][0]}
                    refused[is_likely] = error
                    continue
                return Tried(answering, order, kv_len != SEQ_LEN)
    raise refused.get(True) or refused[False]


def trial_inputs(asker: Asker, *, kv_len: int, seed: int = 0) -> Inputs:
    """Return random inputs of the sizes and the form of a way to ask."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    sizes = asker.way.sizes
    lengths = (SEQ_LEN, kv_len, kv_len)
    if asker.way.form is Form.HEADS:
        counts = (sizes.num_heads, sizes.num_kv_heads, sizes.num_kv_heads)
        widths = (sizes.head_dim, sizes.head_dim, sizes.value_head_dim)
        query, key, value = (drawn(BATCH, *shape) for shape in zip(counts, lengths, widths, strict=True))
        return Inputs(query, key, value)
    query, key, value = (drawn(BATCH, *shape) for shape in zip(lengths, asker.in_widths, strict=True))
    given = asker.caller.parameters.roles
    if Role.KEY not in given:
        return Inputs(query, query, query)
    return Inputs(query, key, value if Role.VALUE in given else key)


def takes_mask(tried: Tried, masks: Iterable[Tensor]) -> bool:
    """Return whether it answers with any of some masks, as booleans, as zeros or as integers."""
    inputs = trial_inputs(tried.asker, kv_len=tried.kv_len)
    for mask in masks:
        for given in (mask, mask.float() - 1, mask.long()):
            try:
                tried.asker.ask(replace(inputs, options={Role.MASK: given}), tried.axes)
            except SubjectError:
                continue
            return True
    return False


def _kind(asker: Asker) -> tuple[Form, bool, bool]:
    return asker.way.form, asker.way.has_batch, asker.way.as_arrays


def _answering(asker: Asker, inputs: Inputs, axes: str) -> Asker:
    """Return the way if it answers; with a mask that hides nothing, if it must have one.

    Raises:
        SubjectError: it does not answer.

    """
    try:
        asker.ask(inputs, axes)
    except SubjectError as error:
        refused = error
        if not _must_have_a_mask(asker):
            raise
    else:
        return asker
    # Which of the two hides nothing is not known: where everything is hidden, queries make no difference.
    other = replace(inputs, query=trial_inputs(asker, kv_len=inputs.key.shape[-2], seed=1).query)
    for rank, fill in product((2, 4, 3), (True, False, 0.0)):
        filled = replace(asker, neutral=FullMask(fill, rank))
        with suppress(SubjectError):
            if _is_finite_and_another(filled.ask(inputs, axes), filled.ask(other, axes)):
                return filled
    raise refused


def _must_have_a_mask(asker: Asker) -> bool:
    parameters = asker.caller.parameters
    return any(
        meaning is Role.MASK
        and name in parameters.signature.parameters
        and is_required(parameters.signature.parameters[name])
        for name, meaning in parameters.meanings.items()
    )


def _is_finite_and_another(one: Answer, two: Answer) -> bool:
    is_finite = bool(torch.isfinite(one.output).all())
    return is_finite and not torch.allclose(one.output, two.output)
