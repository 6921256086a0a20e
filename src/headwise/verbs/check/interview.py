"""The subject is asked every probe, in the dtypes of masks that it understands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headwise.errors import SubjectError
from headwise.verbs.check.asking import Answer, Inputs, Role
from headwise.verbs.check.probes import Probe

Ask = Callable[[Inputs], Answer]

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


def interview(ask: Ask, probes: list[Probe]) -> list[Asked]:
    """Return every probe with its answer; the first, which hands over nothing but rows, must be answered.

    Raises:
        SubjectError: the subject cannot answer the first probe.

    """
    first, *others = probes
    found = [Asked(first, ask(first.inputs))]
    preferred: dict[Role, str] = {}
    found += [ask_probe(ask, probe, preferred) for probe in others]
    return found


def order_matters(ask: Ask, probe: Probe) -> bool:
    """Whether the last row's answer changes when two earlier tokens change places.

    Raises:
        SubjectError: the subject cannot answer.

    """
    inputs = probe.inputs
    order = torch.arange(inputs.key.shape[-2])
    order[[0, -2]] = order[[-2, 0]]
    query, key, value = (rows[..., order, :] for rows in (inputs.query, inputs.key, inputs.value))
    rows = [
        ask(given).output[..., -1, :].double()
        for given in (inputs, replace(inputs, query=query, key=key, value=value))
    ]
    largest = float(rows[0].abs().max())
    return not float((rows[0] - rows[1]).abs().max()) <= _UNMOVED[inputs.query.dtype] * largest


def ask_probe(ask: Ask, probe: Probe, preferred: dict[Role, str] | None = None) -> Asked:
    """Ask one probe; `preferred` is, by role, the dtype that masks are tried in first, and is kept up."""
    preferred = {} if preferred is None else preferred
    refusal = None
    masked = next((role for role in (Role.MASK, Role.PADDING) if role in probe.inputs.options), None)
    ways = list(_ways(probe.inputs, masked))
    ways.sort(key=lambda way: masked in preferred and way[0] != preferred[masked])
    for handed, inputs in ways:
        try:
            answer = _answer(ask, replace(probe, inputs=inputs))
        except SubjectError as fault:
            refusal = refusal or str(fault)
            continue
        if masked is not None:
            preferred.setdefault(masked, handed)
        return Asked(probe, answer, handed=handed if masked else None)
    return Asked(probe, None, refusal=refusal)


def _answer(ask: Ask, probe: Probe) -> Answer:
    if probe.past is None:
        return ask(probe.inputs)
    options = {**probe.inputs.options, Role.CACHE: ask(probe.past).cache}
    return ask(replace(probe.inputs, options=options))


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
