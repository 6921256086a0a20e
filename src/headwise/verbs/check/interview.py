"""The subject is asked every probe, in the dtypes of masks that it understands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headwise.errors import SubjectError
from headwise.verbs.check.asking import Answer, Inputs, Role, Subject
from headwise.verbs.check.probes import Probe

# Two sums in another order differ by less than this share; a rotation by one place, by much more.
_UNMOVED = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}


@dataclass(frozen=True, eq=False)
class Asked:
    """A probe with what came back.

    - answer: None where the subject refused
    - refusal: what it raised, or None
    - handed: the dtype in which a mask was handed over, or None
    """

    probe: Probe
    answer: Answer | None
    refusal: str | None = None
    handed: str | None = None


def interview(subject: Subject, probes: list[Probe], axes: str) -> list[Asked]:
    """Return every probe with its answer; the first, which hands over nothing but rows, must be answered.

    Raises:
        SubjectError: the subject cannot answer the first probe.

    """
    first, *others = probes
    found = [Asked(first, subject.answer(first.inputs, axes=axes))]
    preferred: dict[Role, str] = {}
    found += [_asked(subject, probe, axes, preferred) for probe in others]
    return found


def order_matters(subject: Subject, probe: Probe, axes: str) -> bool:
    """Whether the last row's answer changes when two earlier tokens change places.

    Raises:
        SubjectError: the subject cannot answer.

    """
    inputs = probe.inputs
    order = torch.arange(inputs.key.shape[-2])
    order[[0, -2]] = order[[-2, 0]]
    query, key, value = (rows[..., order, :] for rows in (inputs.query, inputs.key, inputs.value))
    rows = [
        subject.answer(given, axes=axes).output[..., -1, :].double()
        for given in (inputs, replace(inputs, query=query, key=key, value=value))
    ]
    largest = float(rows[0].abs().max())
    return not float((rows[0] - rows[1]).abs().max()) <= _UNMOVED[inputs.query.dtype] * largest


def _asked(subject: Subject, probe: Probe, axes: str, preferred: dict[Role, str]) -> Asked:
    refusal = None
    masked = next((role for role in (Role.MASK, Role.PADDING) if role in probe.inputs.options), None)
    ways = list(_ways(probe.inputs, masked))
    if masked is not None and masked in preferred:
        ways.sort(key=lambda way: way[0] != preferred[masked])
    for handed, inputs in ways:
        try:
            answer = _answer(subject, replace(probe, inputs=inputs), axes)
        except SubjectError as fault:
            refusal = refusal or str(fault)
            continue
        if masked is not None:
            preferred.setdefault(masked, handed)
        return Asked(probe, answer, handed=handed if masked else None)
    return Asked(probe, None, refusal=refusal)


def _answer(subject: Subject, probe: Probe, axes: str) -> Answer:
    if probe.past is None:
        return subject.answer(probe.inputs, axes=axes)
    earlier = subject.answer(probe.past, axes=axes)
    options = {**probe.inputs.options, Role.CACHE: earlier.cache}
    return subject.answer(replace(probe.inputs, options=options), axes=axes)


def _ways(inputs: Inputs, masked: Role | None) -> Iterator[tuple[str, Inputs]]:
    """Yield the inputs with the mask in every dtype in which people hand masks over."""
    if masked is None:
        yield "", inputs
        return
    for dtype, given in _dtypes(inputs.options[masked], inputs.query.dtype):
        yield dtype, replace(inputs, options={**inputs.options, masked: given})


def _dtypes(mask: Tensor, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    if mask.dtype != torch.bool:
        yield "float", mask.to(dtype)
        return
    # Code that computes with a mask, `1 - mask`, takes no booleans, but the same in numbers.
    yield "boolean", mask
    yield "ones and zeros", mask.to(dtype)
    yield "integers", mask.to(torch.int64)
