"""The subject is asked every probe, in the shapes and dtypes of masks that it understands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

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
    - handed: the dtype and shape in which a mask was handed over, or None
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
    understood: dict[Role, str] = {}
    for probe in others:
        answered = {asked.probe.name for asked in found if asked.answer is not None}
        if answered.issuperset(probe.parts):
            found.append(ask_probe(ask, probe, understood))
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


def ask_probe(ask: Ask, probe: Probe, understood: dict[Role, str] | None = None) -> Asked:
    """Ask one probe, with its masks in each way until one is understood.

    Args:
        ask: how to ask.
        probe: what to ask.
        understood: by role, the way that was understood before; it is tried first, and kept up.

    """
    understood = {} if understood is None else understood
    refusal = None
    for handed, inputs in _ways(probe.inputs, understood):
        try:
            answer = _answer(ask, replace(probe, inputs=inputs))
        except SubjectError as fault:
            refusal = refusal or str(fault)
            continue
        for role, way in handed.items():
            understood.setdefault(role, way)
        return Asked(probe, answer, handed=next(iter(handed.values()), None))
    return Asked(probe, None, refusal=refusal)


def _answer(ask: Ask, probe: Probe) -> Answer:
    if probe.past is None:
        return ask(probe.inputs)
    options = {**probe.inputs.options, Role.CACHE: ask(probe.past).cache}
    return ask(replace(probe.inputs, options=options))


def _ways(inputs: Inputs, understood: dict[Role, str]) -> Iterator[tuple[dict[Role, str], Inputs]]:
    """Yield the inputs with masks in every shape and dtype in which people hand them over."""
    batch, dtype = inputs.query.shape[0], inputs.query.dtype
    forms: dict[Role, list[tuple[str, Tensor]]] = {}
    for role in (Role.MASK, Role.PADDING, Role.BIAS):
        if role in inputs.options:
            # Dtypes outside: code that takes no booleans takes them in no shape.
            forms[role] = [
                (f"{typed} {shape}", given)
                for typed, mask in _dtypes(inputs.options[role], dtype)
                for shape, given in _shapes(mask, batch, role)
            ]
            before = understood.get(role)
            forms[role] = sorted(forms[role], key=partial(_is_another, before))
    for chosen in product(*forms.values()):
        given = {role: mask for role, (_, mask) in zip(forms, chosen, strict=True)}
        handed = {role: way for role, (way, _) in zip(forms, chosen, strict=True)}
        yield handed, replace(inputs, options={**inputs.options, **given})


def _is_another(before: str | None, form: tuple[str, Tensor]) -> bool:
    return before is not None and form[0] != before


def _shapes(mask: Tensor, batch: int, masked: Role) -> Iterator[tuple[str, Tensor]]:
    if masked is Role.PADDING:
        yield "[batch, keys]", mask
        yield "[batch, 1, 1, keys]", mask[:, None, None, :]
        return
    if masked is Role.BIAS:
        yield "[1, heads, queries, keys]", mask
        yield "[heads, queries, keys]", mask[0]
        yield "[batch, heads, queries, keys]", mask.expand(batch, -1, -1, -1)
        return
    if mask.dim() == 2:
        yield "[queries, keys]", mask
        mask = mask[None, None]
    # Three axes before four: where code adds an axis, four would become five, which some operations let pass.
    whole = mask.expand(batch, -1, -1, -1)
    yield "[batch, queries, keys]", whole[:, 0]
    yield "[batch, 1, queries, keys]", whole


def _dtypes(mask: Tensor, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    if mask.dtype != torch.bool:
        yield "float", mask.to(dtype)
        return
    # Code that computes with a mask, `1 - mask`, takes no booleans, but the same in numbers.
    yield "boolean", mask
    yield "ones and zeros", mask.to(dtype)
    yield "integers", mask.to(torch.int64)
