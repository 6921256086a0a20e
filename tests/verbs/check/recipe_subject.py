"""A subject that answers by a recipe, in float32: its faults and conventions are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from headwise.errors import SubjectError
from headwise.rope import Rope
from headwise.verbs.check.asking import Answer, Form, Inputs, Projection, Projections, Role, Sizes
from headwise.verbs.check.expected import Expected
from headwise.verbs.check.recipe import CannotComputeError, Computation, Recipe

from .made_subject import MadeSubject

SIZES = Sizes(num_heads=6, num_kv_heads=3, head_dim=10, value_head_dim=4, d_model=35)
EQUAL_SIZES = Sizes(num_heads=3, num_kv_heads=3, head_dim=8, value_head_dim=8, d_model=24)
INPUTS = frozenset({Role.QUERY, Role.KEY, Role.VALUE})
OPTIONS = INPUTS | {
    Role.CAUSAL,
    Role.MASK,
    Role.PADDING,
    Role.BIAS,
    Role.SCALE,
    Role.SOFTCAP,
    Role.WINDOW,
}
EVERYTHING_DECLARED = Expected(mask_means="attend", causal="lower_right", axes="bhqd")


def projections(sizes: Sizes, fused: str | None = None) -> Projections:
    random = torch.Generator().manual_seed(1)

    def drawn(rows: int, columns: int) -> Projection:
        weight = torch.randn(columns, rows, generator=random) * rows**-0.5
        return Projection(weight, 0.3 * torch.randn(columns, generator=random))

    return Projections(
        drawn(sizes.d_model, sizes.num_heads * sizes.head_dim),
        drawn(sizes.d_model, sizes.num_kv_heads * sizes.head_dim),
        drawn(sizes.d_model, sizes.num_kv_heads * sizes.value_head_dim),
        drawn(sizes.num_heads * sizes.value_head_dim, sizes.d_model),
        fused,
    )


def subject_by(recipe: Recipe, **described: Any) -> MadeSubject:
    """A subject that answers by `recipe`; `described` are fields of `MadeSubject`."""
    subject = MadeSubject(lambda inputs: _answered(subject, recipe, inputs), **described)
    if subject.form is Form.PROJECTED and not subject.readings:
        subject.readings = (projections(subject.sizes),)
    return subject


def _answered(subject: MadeSubject, recipe: Recipe, inputs: Inputs) -> Answer:
    past, padding = inputs.options.get(Role.CACHE), inputs.options.get(Role.PADDING)
    if padding is not None and padding.dim() != 2:
        raise SubjectError("it takes padding as [batch, kv_len]")
    made = Computation(
        form=subject.form,
        sizes=subject.sizes,
        readings=subject.readings,
        inputs=inputs,
        past=past,
        dtype=torch.float32,
    )
    try:
        output = made.answer(recipe).output
    except CannotComputeError as fault:
        raise SubjectError(f"it raised: {fault}") from fault
    return Answer(output, cache=replace(inputs, options={}))


HEADS_CASE = ({"takes": OPTIONS}, EVERYTHING_DECLARED, Recipe())
ADDED_MASKS_CASE = (HEADS_CASE[0], replace(EVERYTHING_DECLARED, mask_means="add"), Recipe(mask_means="add"))
PADDING_CASE = ({"takes": OPTIONS - {Role.MASK}}, replace(EVERYTHING_DECLARED, mask_means="ignore"), Recipe())
EQUAL_HEADS_CASE = ({"takes": OPTIONS, "sizes": EQUAL_SIZES}, EVERYTHING_DECLARED, Recipe())
ROWS_CASE = (
    {
        "form": Form.PROJECTED,
        "sizes": EQUAL_SIZES,
        "takes": frozenset({Role.QUERY}),
        "lengths_may_differ": False,
    },
    Expected(causal=False),
    Recipe(),
)
FUSED_CASE = ({**ROWS_CASE[0], "readings": (projections(EQUAL_SIZES, "blocks"),)}, *ROWS_CASE[1:])
CACHED_CASE = (
    {**ROWS_CASE[0], "takes": frozenset({Role.QUERY, Role.CACHE})},
    Expected(causal=True, rope=Rope(base=100.0), window=4),
    Recipe(causal=True, rope=Rope(base=100.0), window=4),
)
INTERLEAVED_CASE = (
    CACHED_CASE[0],
    Expected(causal=True, rope=Rope(pairing="interleaved")),
    Recipe(causal=True, rope=Rope(pairing="interleaved")),
)
"""What describes a subject, what is declared of it, and the recipe that is right."""
